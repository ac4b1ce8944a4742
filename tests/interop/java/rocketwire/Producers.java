package rocketwire;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;

import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The producers of this process, by the name the caller gave them. */
final class Producers {
    private static final long LIMIT_SECONDS = 60;

    private final Map<String, DefaultMQProducer> running = new ConcurrentHashMap<>();
    private final Map<String, List<Object>> checked = new ConcurrentHashMap<>();

    void register(Map<String, Driver.Command> commands) {
        commands.put("producer.start", this::start);
        commands.put("producer.stop", this::stop);
        commands.put("producer.queues", this::queues);
        commands.put("producer.send", this::send);
        commands.put("producer.batch", this::batch);
        commands.put("producer.transaction", this::transaction);
        commands.put("producer.checks", given -> checked.get(given.text("producer")));
        commands.put("producer.request", this::request);
        commands.put("producer.recall", this::recall);
    }

    DefaultMQProducer get(Arguments given) {
        return get(given.text("producer"));
    }

    DefaultMQProducer get(String name) {
        DefaultMQProducer producer = running.get(name);
        if (producer == null) {
            throw new IllegalArgumentException("no producer was started under the name " + name);
        }
        return producer;
    }

    private Object start(Arguments given) throws Exception {
        String name = given.text("producer");
        String group = given.text("group");
        DefaultMQProducer producer;
        if (given.flag("transactional")) {
            TransactionMQProducer transactional = new TransactionMQProducer(group, given.signer());
            List<Object> checks = new CopyOnWriteArrayList<>();
            checked.put(name, checks);
            transactional.setTransactionListener(new Listener(checks));
            producer = transactional;
        } else {
            producer = new DefaultMQProducer(group, given.signer(), given.flag("trace"), null);
        }
        given.configure(producer);
        producer.start();
        running.put(name, producer);
        return null;
    }

    private Object stop(Arguments given) {
        get(given).shutdown();
        running.remove(given.text("producer"));
        return null;
    }

    private Object queues(Arguments given) throws Exception {
        List<Object> shown = new ArrayList<>();
        for (MessageQueue queue : get(given).fetchPublishMessageQueues(given.text("topic"))) {
            shown.add(Messages.write(queue));
        }
        return shown;
    }

    private Object send(Arguments given) throws Exception {
        DefaultMQProducer producer = get(given);
        Message message = Messages.read(given.inner("message"));
        MessageQueue queue = given.has("queue") ? Messages.readQueue(given.inner("queue")) : null;
        Object key = given.has("key") ? Keys.read(given.inner("key")) : null;
        switch (given.text("mode", "sync")) {
            case "sync":
                return Messages.write(sendNow(producer, message, queue, key));
            case "async":
                return Messages.write(sendLater(producer, message, queue, key));
            case "oneway":
                sendAway(producer, message, queue, key);
                return null;
            default:
                throw new IllegalArgumentException("mode is sync, async or oneway");
        }
    }

    private static SendResult sendNow(DefaultMQProducer producer, Message message, MessageQueue queue, Object key)
        throws Exception {
        if (queue != null) {
            return producer.send(message, queue);
        }
        return key == null ? producer.send(message) : producer.send(message, new SelectMessageQueueByHash(), key);
    }

    private static SendResult sendLater(DefaultMQProducer producer, Message message, MessageQueue queue, Object key)
        throws Exception {
        Sent sent = new Sent();
        if (queue != null) {
            producer.send(message, queue, sent);
        } else if (key != null) {
            producer.send(message, new SelectMessageQueueByHash(), key, sent);
        } else {
            producer.send(message, sent);
        }
        return Driver.await(sent.result, LIMIT_SECONDS);
    }

    private static void sendAway(DefaultMQProducer producer, Message message, MessageQueue queue, Object key)
        throws Exception {
        if (queue != null) {
            producer.sendOneway(message, queue);
        } else if (key != null) {
            producer.sendOneway(message, new SelectMessageQueueByHash(), key);
        } else {
            producer.sendOneway(message);
        }
    }

    private Object batch(Arguments given) throws Exception {
        DefaultMQProducer producer = get(given);
        List<Message> messages = Messages.readAll(given.each("messages"));
        if (given.has("queue")) {
            return Messages.write(producer.send(messages, Messages.readQueue(given.inner("queue"))));
        } else if (given.text("mode", "sync").equals("async")) {
            Sent sent = new Sent();
            producer.send(messages, sent);
            return Messages.write(Driver.await(sent.result, LIMIT_SECONDS));
        }
        return Messages.write(producer.send(messages));
    }

    private Object transaction(Arguments given) throws Exception {
        TransactionMQProducer producer = (TransactionMQProducer) get(given);
        Message message = Messages.read(given.inner("message"));
        message.putUserProperty("check", given.text("check", "UNKNOW"));
        String local = given.text("local");
        Map<String, Object> shown = Messages.write(producer.sendMessageInTransaction(message, local));
        shown.put("local", local);
        return shown;
    }

    private Object request(Arguments given) throws Exception {
        DefaultMQProducer producer = get(given);
        Message message = Messages.read(given.inner("message"));
        long limit = given.number("timeout_ms", 10_000);
        if (!given.flag("callback")) {
            return Messages.write(producer.request(message, limit));
        }
        CompletableFuture<Message> reply = new CompletableFuture<>();
        producer.request(message, new RequestCallback() {
            @Override
            public void onSuccess(Message answer) {
                // Some releases report the success of the send here, with null, before the reply.
                if (answer != null) {
                    reply.complete(answer);
                }
            }

            @Override
            public void onException(Throwable error) {
                reply.completeExceptionally(error);
            }
        }, limit);
        return Messages.write(reply.get(limit + 5_000, TimeUnit.MILLISECONDS));
    }

    private Object recall(Arguments given) throws Exception {
        DefaultMQProducer producer = get(given);
        return DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class)
            .invoke(producer, given.text("topic"), given.text("handle"));
    }

    /** Completes a future from the callback of an asynchronous send. */
    static final class Sent implements SendCallback {
        final CompletableFuture<SendResult> result = new CompletableFuture<>();

        @Override
        public void onSuccess(SendResult answer) {
            result.complete(answer);
        }

        @Override
        public void onException(Throwable error) {
            result.completeExceptionally(error);
        }
    }

    /** Answers as the message says, and remembers what it was asked. */
    private static final class Listener implements TransactionListener {
        private final List<Object> checks;

        Listener(List<Object> checks) {
            this.checks = checks;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object wanted) {
            return LocalTransactionState.valueOf((String) wanted);
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            Map<String, Object> shown = new LinkedHashMap<>(Messages.write(message));
            checks.add(shown);
            return LocalTransactionState.valueOf(message.getUserProperty("check"));
        }
    }
}
