package main

import (
	"context"
	"time"

	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

func registerAdmin(commands map[string]command) {
	commands["admin.create_topic"] = createTopic
	commands["admin.delete_topic"] = deleteTopic
	commands["admin.topics"] = topics
	commands["admin.queues"] = queues
}

func newAdmin(given arguments) (admin.Admin, error) {
	chosen := []admin.AdminOption{
		admin.WithResolver(primitive.NewPassthroughResolver(given.nameServers())),
	}
	if account, ok := given.credentials(); ok {
		chosen = append(chosen, admin.WithCredentials(account))
	}
	return admin.NewAdmin(chosen...)
}

func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 20*time.Second)
}

func createTopic(given arguments) (value, error) {
	client, err := newAdmin(given)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := limited()
	defer cancel()
	queues := int(given.number("queues", 4))
	return nil, client.CreateTopic(ctx,
		admin.WithTopicCreate(given.text("topic", "")),
		admin.WithBrokerAddrCreate(given.text("broker_address", "")),
		admin.WithReadQueueNums(queues),
		admin.WithWriteQueueNums(queues))
}

func deleteTopic(given arguments) (value, error) {
	client, err := newAdmin(given)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := limited()
	defer cancel()
	return nil, client.DeleteTopic(ctx,
		admin.WithTopicDelete(given.text("topic", "")),
		admin.WithBrokerAddrDelete(given.text("broker_address", "")),
		admin.WithNameSrvAddr(given.nameServers()))
}

func topics(given arguments) (value, error) {
	client, err := newAdmin(given)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := limited()
	defer cancel()
	found, err := client.FetchAllTopicList(ctx)
	if err != nil {
		return nil, err
	}
	return found.TopicList, nil
}

func queues(given arguments) (value, error) {
	client, err := newAdmin(given)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := limited()
	defer cancel()
	found, err := client.FetchPublishMessageQueues(ctx, given.text("topic", ""))
	if err != nil {
		return nil, err
	}
	shown := []value{}
	for _, queue := range found {
		shown = append(shown, map[string]any{
			"topic": queue.Topic, "broker": queue.BrokerName, "queue": queue.QueueId,
		})
	}
	return shown, nil
}
