package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const sendLimit = 60 * time.Second

// producers are those of this process, by the name the caller gave them. One name stands for three
// clients of the library, since it binds the way of choosing a queue to the client.
type producers struct {
	lock          sync.Mutex
	plain         map[string]rocketmq.Producer
	pinned        map[string]rocketmq.Producer
	sharded       map[string]rocketmq.Producer
	transactional map[string]rocketmq.TransactionProducer
	checks        map[string]*listener
}

func newProducers() *producers {
	return &producers{
		plain:         map[string]rocketmq.Producer{},
		pinned:        map[string]rocketmq.Producer{},
		sharded:       map[string]rocketmq.Producer{},
		transactional: map[string]rocketmq.TransactionProducer{},
		checks:        map[string]*listener{},
	}
}

func (p *producers) register(commands map[string]command) {
	commands["producer.start"] = p.start
	commands["producer.stop"] = p.stop
	commands["producer.send"] = p.send
	commands["producer.batch"] = p.batch
	commands["producer.transaction"] = p.transaction
	commands["producer.checks"] = func(given arguments) (value, error) {
		return p.checks[given.text("producer", "")].seen(), nil
	}
	commands["producer.request"] = p.request
}

func options(given arguments, group string, more ...producer.Option) []producer.Option {
	chosen := []producer.Option{
		producer.WithNameServer(given.nameServers()),
		producer.WithGroupName(group),
		producer.WithInstanceName(fmt.Sprintf("%s-%d", group, time.Now().UnixNano())),
		producer.WithSendMsgTimeout(given.wait("timeout_ms", 3*time.Second)),
		producer.WithRetry(int(given.number("retries", 2))),
	}
	if account, ok := given.credentials(); ok {
		chosen = append(chosen, producer.WithCredentials(account))
	}
	if given.has("namespace") {
		chosen = append(chosen, producer.WithNamespace(given.text("namespace", "")))
	}
	return append(chosen, more...)
}

func (p *producers) start(given arguments) (value, error) {
	name, group := given.text("producer", ""), given.text("group", "")
	p.lock.Lock()
	defer p.lock.Unlock()
	if given.flag("transactional") {
		heard := &listener{local: map[string]primitive.LocalTransactionState{}}
		made, err := rocketmq.NewTransactionProducer(heard, options(given, group)...)
		if err != nil {
			return nil, err
		}
		p.transactional[name], p.checks[name] = made, heard
		return nil, made.Start()
	}
	for _, kind := range []struct {
		clients  map[string]rocketmq.Producer
		group    string
		selector producer.QueueSelector
	}{
		{p.plain, group, producer.NewRoundRobinQueueSelector()},
		{p.pinned, group + "-pinned", producer.NewManualQueueSelector()},
		{p.sharded, group + "-sharded", producer.NewHashQueueSelector()},
	} {
		chosen := options(given, kind.group, producer.WithQueueSelector(kind.selector))
		made, err := rocketmq.NewProducer(chosen...)
		if err != nil {
			return nil, err
		}
		if err := made.Start(); err != nil {
			return nil, err
		}
		kind.clients[name] = made
	}
	return nil, nil
}

func (p *producers) stop(given arguments) (value, error) {
	name := given.text("producer", "")
	p.lock.Lock()
	defer p.lock.Unlock()
	if made, ok := p.transactional[name]; ok {
		delete(p.transactional, name)
		return nil, made.Shutdown()
	}
	for _, clients := range []map[string]rocketmq.Producer{p.plain, p.pinned, p.sharded} {
		if made, ok := clients[name]; ok {
			delete(clients, name)
			if err := made.Shutdown(); err != nil {
				return nil, err
			}
		}
	}
	return nil, nil
}

func (p *producers) get(given arguments) (rocketmq.Producer, error) {
	clients := p.plain
	if given.has("queue") {
		clients = p.pinned
	} else if given.has("key") {
		clients = p.sharded
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	made, ok := clients[given.text("producer", "")]
	if !ok {
		return nil, fmt.Errorf("no producer was started under the name %q", given.text("producer", ""))
	}
	return made, nil
}

func (p *producers) send(given arguments) (value, error) {
	client, err := p.get(given)
	if err != nil {
		return nil, err
	}
	message, err := given.inner("message").message()
	if err != nil {
		return nil, err
	}
	if given.has("queue") {
		message.Queue = given.inner("queue").queue()
	} else if given.has("key") {
		message.WithShardingKey(given.inner("key").text("value", ""))
	}
	ctx, cancel := context.WithTimeout(context.Background(), sendLimit)
	defer cancel()
	switch given.text("mode", "sync") {
	case "sync":
		return shown(client.SendSync(ctx, message))
	case "async":
		return sendAsync(ctx, client, message)
	case "oneway":
		return nil, client.SendOneWay(ctx, message)
	default:
		return nil, fmt.Errorf("mode is sync, async or oneway")
	}
}

func shown(result *primitive.SendResult, err error) (value, error) {
	if err != nil {
		return nil, err
	}
	return showResult(result), nil
}

func sendAsync(ctx context.Context, client rocketmq.Producer, messages ...*primitive.Message) (value, error) {
	type outcome struct {
		result *primitive.SendResult
		err    error
	}
	done := make(chan outcome, 1)
	err := client.SendAsync(ctx, func(_ context.Context, result *primitive.SendResult, err error) {
		done <- outcome{result, err}
	}, messages...)
	if err != nil {
		return nil, err
	}
	select {
	case found := <-done:
		return shown(found.result, found.err)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *producers) batch(given arguments) (value, error) {
	client, err := p.get(given)
	if err != nil {
		return nil, err
	}
	var messages []*primitive.Message
	for _, each := range given.each("messages") {
		message, err := each.message()
		if err != nil {
			return nil, err
		}
		messages = append(messages, message)
	}
	ctx, cancel := context.WithTimeout(context.Background(), sendLimit)
	defer cancel()
	if given.text("mode", "sync") == "async" {
		return sendAsync(ctx, client, messages...)
	}
	return shown(client.SendSync(ctx, messages...))
}

func (p *producers) transaction(given arguments) (value, error) {
	name := given.text("producer", "")
	message, err := given.inner("message").message()
	if err != nil {
		return nil, err
	}
	message.WithProperty("check", given.text("check", "UNKNOW"))
	message.WithProperty("local", given.text("local", ""))
	ctx, cancel := context.WithTimeout(context.Background(), sendLimit)
	defer cancel()
	result, err := p.transactional[name].SendMessageInTransaction(ctx, message)
	if err != nil {
		return nil, err
	}
	return showResult(result.SendResult), nil
}

func (p *producers) request(given arguments) (value, error) {
	client, err := p.get(given)
	if err != nil {
		return nil, err
	}
	message, err := given.inner("message").message()
	if err != nil {
		return nil, err
	}
	limit := given.wait("timeout_ms", 10*time.Second)
	ctx, cancel := context.WithTimeout(context.Background(), limit+5*time.Second)
	defer cancel()
	reply, err := client.Request(ctx, limit, message)
	if err != nil {
		return nil, err
	}
	return showMessage(reply), nil
}

// listener answers as the message says, and remembers what it was asked.
type listener struct {
	lock  sync.Mutex
	local map[string]primitive.LocalTransactionState
	asked []value
}

func (l *listener) seen() []value {
	l.lock.Lock()
	defer l.lock.Unlock()
	return append([]value{}, l.asked...)
}

func (l *listener) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	return stateNamed(message.GetProperty("local"))
}

func (l *listener) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	l.lock.Lock()
	l.asked = append(l.asked, showStored(message))
	l.lock.Unlock()
	return stateNamed(message.GetProperty("check"))
}

func stateNamed(name string) primitive.LocalTransactionState {
	switch name {
	case "COMMIT_MESSAGE":
		return primitive.CommitMessageState
	case "ROLLBACK_MESSAGE":
		return primitive.RollbackMessageState
	default:
		return primitive.UnknowState
	}
}
