package rocketwire;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;

import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.MessageQueue;

/** Sharding keys of every kind, and the queue which Java's own selector gives them. */
final class Keys {
    private Keys() {
    }

    /** A key is {"type": ..., "value": ...}; characters that JSON cannot hold come as UTF-16 numbers. */
    static Object read(Arguments key) {
        String type = key.text("type");
        switch (type) {
            case "string":
                return key.text("value");
            case "utf16":
                return readUnits(key.list("value"));
            case "int":
                return Integer.valueOf(key.text("value"));
            case "long":
                return Long.valueOf(key.text("value"));
            case "short":
                return Short.valueOf(key.text("value"));
            case "byte":
                return Byte.valueOf(key.text("value"));
            case "bool":
                return Boolean.valueOf(key.text("value"));
            case "float":
                return Float.valueOf(key.text("value"));
            case "double":
                return Double.valueOf(key.text("value"));
            case "uuid":
                return UUID.fromString(key.text("value"));
            default:
                throw new IllegalArgumentException("keys have no type " + type);
        }
    }

    private static String readUnits(List<Object> units) {
        StringBuilder text = new StringBuilder();
        for (Object unit : units) {
            text.append((char) Integer.parseInt(unit.toString()));
        }
        return text.toString();
    }

    /** For each key its hash code and its index among n queues. */
    static Object select(Arguments given) {
        int count = (int) given.number("queues");
        List<MessageQueue> queues = new ArrayList<>();
        for (int index = 0; index < count; index++) {
            queues.add(new MessageQueue("T", "B", index));
        }
        SelectMessageQueueByHash selector = new SelectMessageQueueByHash();
        List<Object> found = new ArrayList<>();
        for (Arguments each : given.each("keys")) {
            Object key = read(each);
            found.add(Arrays.asList(key.hashCode(), selector.select(queues, null, key).getQueueId()));
        }
        return found;
    }
}
