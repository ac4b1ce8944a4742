package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// consumers are those of this process, by the name the caller gave them.
type consumers struct {
	senders  *producers
	lock     sync.Mutex
	stops    map[string]func() error
	received map[string]chan *primitive.MessageExt
	pulling  map[string]rocketmq.PullConsumer
}

func newConsumers(senders *producers) *consumers {
	return &consumers{
		senders:  senders,
		stops:    map[string]func() error{},
		received: map[string]chan *primitive.MessageExt{},
		pulling:  map[string]rocketmq.PullConsumer{},
	}
}

func (c *consumers) register(commands map[string]command) {
	commands["push.start"] = c.startPush
	commands["push.take"] = c.take
	commands["pull.start"] = c.startPull
	commands["pull.pull"] = c.pull
	commands["consumer.stop"] = c.stop
}

func consumerOptions(given arguments) []consumer.Option {
	group := given.text("group", "")
	chosen := []consumer.Option{
		consumer.WithNameServer(given.nameServers()),
		consumer.WithGroupName(group),
		consumer.WithInstance(fmt.Sprintf("%s-%d", group, time.Now().UnixNano())),
		consumer.WithConsumerOrder(given.flag("orderly")),
		consumer.WithMaxReconsumeTimes(int32(given.number("max_reconsume_times", 16))),
	}
	if given.text("from", "first") == "first" {
		chosen = append(chosen, consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	}
	if given.text("model", "clustering") == "broadcasting" {
		chosen = append(chosen, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if account, ok := given.credentials(); ok {
		chosen = append(chosen, consumer.WithCredentials(account))
	}
	return chosen
}

func selectorOf(given arguments) consumer.MessageSelector {
	if given.has("sql") {
		return consumer.MessageSelector{Type: consumer.SQL92, Expression: given.text("sql", "")}
	}
	return consumer.MessageSelector{Type: consumer.TAG, Expression: given.text("tags", "*")}
}

func (c *consumers) startPush(given arguments) (value, error) {
	client, err := rocketmq.NewPushConsumer(consumerOptions(given)...)
	if err != nil {
		return nil, err
	}
	name := given.text("consumer", "")
	queue := make(chan *primitive.MessageExt, 1<<17)
	decides := &judge{
		senders:   c.senders,
		accepted:  queue,
		failFirst: int(given.number("fail_first", 0)),
		replier:   given.text("reply_with", ""),
		refused:   map[string]int{},
	}
	orderly := given.flag("orderly")
	err = client.Subscribe(given.text("topic", ""), selectorOf(given),
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			if decides.accepts(messages) {
				return consumer.ConsumeSuccess, nil
			} else if orderly {
				return consumer.SuspendCurrentQueueAMoment, nil
			}
			return consumer.ConsumeRetryLater, nil
		})
	if err != nil {
		return nil, err
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	c.received[name] = queue
	c.stops[name] = client.Shutdown
	return nil, client.Start()
}

// take gives up to count messages, waiting at most timeout_ms for all of them together.
func (c *consumers) take(given arguments) (value, error) {
	c.lock.Lock()
	queue := c.received[given.text("consumer", "")]
	c.lock.Unlock()
	timer := time.NewTimer(given.wait("timeout_ms", 10*time.Second))
	defer timer.Stop()
	taken := []value{}
	for int64(len(taken)) < given.number("count", 1) {
		select {
		case message := <-queue:
			taken = append(taken, showStored(message))
		case <-timer.C:
			return taken, nil
		}
	}
	return taken, nil
}

func (c *consumers) startPull(given arguments) (value, error) {
	client, err := rocketmq.NewPullConsumer(consumerOptions(given)...)
	if err != nil {
		return nil, err
	}
	if err := client.Subscribe(given.text("topic", ""), selectorOf(given)); err != nil {
		return nil, err
	}
	name := given.text("consumer", "")
	c.lock.Lock()
	defer c.lock.Unlock()
	c.pulling[name] = client
	c.stops[name] = client.Shutdown
	return nil, client.Start()
}

func (c *consumers) pull(given arguments) (value, error) {
	c.lock.Lock()
	client := c.pulling[given.text("consumer", "")]
	c.lock.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	result, err := client.PullFrom(ctx, given.inner("queue").queue(), given.number("offset", 0),
		int(given.number("max", 32)))
	if err != nil {
		return nil, err
	}
	messages := []value{}
	for _, message := range result.GetMessageExts() {
		messages = append(messages, showStored(message))
	}
	return map[string]any{
		"status":   pullStatus(result.Status),
		"next":     result.NextBeginOffset,
		"min":      result.MinOffset,
		"max":      result.MaxOffset,
		"messages": messages,
	}, nil
}

func pullStatus(status primitive.PullStatus) string {
	switch status {
	case primitive.PullFound:
		return "FOUND"
	case primitive.PullNoNewMsg:
		return "NO_NEW_MSG"
	case primitive.PullNoMsgMatched:
		return "NO_MATCHED_MSG"
	case primitive.PullOffsetIllegal:
		return "OFFSET_ILLEGAL"
	default:
		return fmt.Sprint(status)
	}
}

func (c *consumers) stop(given arguments) (value, error) {
	name := given.text("consumer", "")
	c.lock.Lock()
	stop := c.stops[name]
	delete(c.stops, name)
	c.lock.Unlock()
	if stop == nil {
		return nil, errors.New("no such consumer")
	}
	return nil, stop()
}

// judge decides what a listener answers: it refuses each message some times, and may reply to requests.
type judge struct {
	senders   *producers
	accepted  chan *primitive.MessageExt
	failFirst int
	replier   string
	lock      sync.Mutex
	refused   map[string]int
}

func (j *judge) accepts(messages []*primitive.MessageExt) bool {
	for _, message := range messages {
		id := message.GetProperty(primitive.PropertyUniqueClientMessageIdKeyIndex)
		j.lock.Lock()
		j.refused[id]++
		refuse := j.refused[id] <= j.failFirst
		j.lock.Unlock()
		if refuse {
			return false
		}
		j.reply(message)
		j.accepted <- message
	}
	return true
}

func (j *judge) reply(message *primitive.MessageExt) {
	if j.replier == "" || message.GetProperty(primitive.PropertyMessageReplyToClient) == "" {
		return
	}
	body := append([]byte("reply to "), message.Body...)
	reply, err := consumer.CreateReplyMessage(message, body)
	if err != nil {
		panic(err)
	}
	// The library reads the given body as a list of properties and forgets it as a body.
	reply.Body = body
	client, err := j.senders.get(arguments{map[string]any{"producer": j.replier}})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := client.SendSync(ctx, reply); err != nil {
		panic(err)
	}
}
