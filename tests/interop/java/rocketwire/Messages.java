package rocketwire;

import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Messages, queues and results to and from maps. */
final class Messages {
    private Messages() {
    }

    static Message read(Arguments given) {
        Message message = new Message(given.text("topic"), given.bytes("body"));
        message.setFlag((int) given.number("flag", 0));
        if (given.has("tags")) {
            message.setTags(given.text("tags"));
        }
        if (given.has("keys")) {
            message.setKeys(given.text("keys"));
        }
        if (given.has("delay_level")) {
            message.setDelayTimeLevel((int) given.number("delay_level"));
        }
        for (Map.Entry<String, Object> entry : given.inner("properties").map().entrySet()) {
            message.putUserProperty(entry.getKey(), entry.getValue().toString());
        }
        // Names the public setter reserves, among them those which only newer clients have setters for.
        for (Map.Entry<String, Object> entry : given.inner("system").map().entrySet()) {
            MessageAccessor.putProperty(message, entry.getKey(), entry.getValue().toString());
        }
        return message;
    }

    static List<Message> readAll(List<Arguments> given) {
        List<Message> messages = new ArrayList<>();
        for (Arguments each : given) {
            messages.add(read(each));
        }
        return messages;
    }

    static MessageQueue readQueue(Arguments given) {
        return new MessageQueue(given.text("topic"), given.text("broker"), (int) given.number("queue"));
    }

    static Map<String, Object> write(MessageQueue queue) {
        Map<String, Object> shown = new LinkedHashMap<>();
        shown.put("topic", queue.getTopic());
        shown.put("broker", queue.getBrokerName());
        shown.put("queue", queue.getQueueId());
        return shown;
    }

    static Map<String, Object> write(SendResult result) {
        Map<String, Object> shown = new LinkedHashMap<>();
        shown.put("status", result.getSendStatus().name());
        shown.put("msg_id", result.getMsgId());
        shown.put("offset_msg_id", result.getOffsetMsgId());
        shown.put("offset", result.getQueueOffset());
        shown.put("transaction_id", result.getTransactionId());
        shown.put("region", result.getRegionId());
        shown.put("trace_on", result.isTraceOn());
        if (result.getMessageQueue() != null) {
            shown.putAll(write(result.getMessageQueue()));
        }
        try {
            shown.put("recall_handle", SendResult.class.getMethod("getRecallHandle").invoke(result));
        } catch (ReflectiveOperationException older) {
            shown.put("recall_handle", null);
        }
        return shown;
    }

    static Map<String, Object> write(Message message) {
        Map<String, Object> shown = new LinkedHashMap<>();
        shown.put("topic", message.getTopic());
        shown.put("body", Base64.getEncoder().encodeToString(message.getBody()));
        shown.put("flag", message.getFlag());
        shown.put("tags", message.getTags());
        shown.put("keys", message.getKeys());
        shown.put("properties", message.getProperties());
        if (message instanceof MessageExt) {
            writeStored((MessageExt) message, shown);
        }
        return shown;
    }

    private static void writeStored(MessageExt message, Map<String, Object> shown) {
        shown.put("broker", message.getBrokerName());
        shown.put("queue", message.getQueueId());
        shown.put("offset", message.getQueueOffset());
        shown.put("commit_log_offset", message.getCommitLogOffset());
        shown.put("msg_id", message.getMsgId());
        shown.put("offset_msg_id", offsetId(message));
        shown.put("sys_flag", message.getSysFlag());
        shown.put("body_crc", message.getBodyCRC());
        shown.put("store_size", message.getStoreSize());
        shown.put("born", message.getBornTimestamp());
        shown.put("stored", message.getStoreTimestamp());
        shown.put("born_host", host(message.getBornHost()));
        shown.put("store_host", host(message.getStoreHost()));
        shown.put("reconsume_times", message.getReconsumeTimes());
        shown.put("prepared_offset", message.getPreparedTransactionOffset());
        shown.put("transaction_id", message.getTransactionId());
    }

    private static String offsetId(MessageExt message) {
        return message instanceof MessageClientExt ? ((MessageClientExt) message).getOffsetMsgId() : null;
    }

    private static String host(java.net.SocketAddress address) {
        java.net.InetSocketAddress inet = (java.net.InetSocketAddress) address;
        return inet == null ? null : inet.getAddress().getHostAddress() + ":" + inet.getPort();
    }

    static List<Object> writeAll(Iterable<? extends Message> messages) {
        List<Object> shown = new ArrayList<>();
        for (Message message : messages) {
            shown.add(write(message));
        }
        return shown;
    }
}
