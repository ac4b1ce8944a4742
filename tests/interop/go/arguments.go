package main

import (
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// arguments are those of one command, read by name and type.
type arguments struct {
	values map[string]any
}

func (a arguments) has(name string) bool {
	return a.values[name] != nil
}

func (a arguments) text(name, otherwise string) string {
	if !a.has(name) {
		return otherwise
	}
	return fmt.Sprint(a.values[name])
}

func (a arguments) number(name string, otherwise int64) int64 {
	if found, ok := a.values[name].(float64); ok {
		return int64(found)
	}
	return otherwise
}

func (a arguments) flag(name string) bool {
	found, _ := a.values[name].(bool)
	return found
}

func (a arguments) inner(name string) arguments {
	found, _ := a.values[name].(map[string]any)
	return arguments{found}
}

func (a arguments) each(name string) []arguments {
	list, _ := a.values[name].([]any)
	found := make([]arguments, 0, len(list))
	for _, item := range list {
		values, _ := item.(map[string]any)
		found = append(found, arguments{values})
	}
	return found
}

func (a arguments) wait(name string, otherwise time.Duration) time.Duration {
	if !a.has(name) {
		return otherwise
	}
	return time.Duration(a.number(name, 0)) * time.Millisecond
}

func (a arguments) nameServers() []string {
	return strings.Split(a.text("name_server", ""), ";")
}

func (a arguments) credentials() (primitive.Credentials, bool) {
	account := primitive.Credentials{
		AccessKey: a.text("access_key", ""),
		SecretKey: a.text("secret_key", ""),
	}
	return account, a.has("access_key")
}

func (a arguments) message() (*primitive.Message, error) {
	body, err := base64.StdEncoding.DecodeString(a.text("body", ""))
	if err != nil {
		return nil, fmt.Errorf("body is not base64: %w", err)
	}
	made := primitive.NewMessage(a.text("topic", ""), body)
	made.Flag = int32(a.number("flag", 0))
	if a.has("tags") {
		made.WithTag(a.text("tags", ""))
	}
	if a.has("keys") {
		made.WithKeys(strings.Fields(a.text("keys", "")))
	}
	if a.has("delay_level") {
		made.WithDelayTimeLevel(int(a.number("delay_level", 0)))
	}
	for _, part := range []string{"properties", "system"} {
		for name, found := range a.inner(part).values {
			made.WithProperty(name, fmt.Sprint(found))
		}
	}
	return made, nil
}

func (a arguments) queue() *primitive.MessageQueue {
	return &primitive.MessageQueue{
		Topic:      a.text("topic", ""),
		BrokerName: a.text("broker", ""),
		QueueId:    int(a.number("queue", 0)),
	}
}

func showResult(result *primitive.SendResult) map[string]any {
	shown := map[string]any{
		"status":         statusName(result.Status),
		"msg_id":         result.MsgID,
		"offset_msg_id":  result.OffsetMsgID,
		"offset":         result.QueueOffset,
		"transaction_id": result.TransactionID,
		"region":         result.RegionID,
		"trace_on":       result.TraceOn,
	}
	if result.MessageQueue != nil {
		shown["topic"] = result.MessageQueue.Topic
		shown["broker"] = result.MessageQueue.BrokerName
		shown["queue"] = result.MessageQueue.QueueId
	}
	return shown
}

func statusName(status primitive.SendStatus) string {
	switch status {
	case primitive.SendOK:
		return "SEND_OK"
	case primitive.SendFlushDiskTimeout:
		return "FLUSH_DISK_TIMEOUT"
	case primitive.SendFlushSlaveTimeout:
		return "FLUSH_SLAVE_TIMEOUT"
	case primitive.SendSlaveNotAvailable:
		return "SLAVE_NOT_AVAILABLE"
	default:
		return "UNKNOWN"
	}
}

func showMessage(message *primitive.Message) map[string]any {
	return map[string]any{
		"topic":      message.Topic,
		"body":       base64.StdEncoding.EncodeToString(message.Body),
		"flag":       message.Flag,
		"tags":       message.GetTags(),
		"keys":       message.GetKeys(),
		"properties": message.GetProperties(),
	}
}

func showStored(message *primitive.MessageExt) map[string]any {
	shown := showMessage(&message.Message)
	shown["msg_id"] = message.MsgId
	shown["offset_msg_id"] = message.OffsetMsgId
	shown["offset"] = message.QueueOffset
	shown["commit_log_offset"] = message.CommitLogOffset
	shown["sys_flag"] = message.SysFlag
	shown["body_crc"] = message.BodyCRC
	shown["store_size"] = message.StoreSize
	shown["born"] = message.BornTimestamp
	shown["stored"] = message.StoreTimestamp
	shown["born_host"] = message.BornHost
	shown["store_host"] = message.StoreHost
	shown["reconsume_times"] = message.ReconsumeTimes
	if message.Queue != nil {
		shown["broker"] = message.Queue.BrokerName
		shown["queue"] = message.Queue.QueueId
	}
	return shown
}
