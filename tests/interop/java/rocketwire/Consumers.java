package rocketwire;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The consumers of this process, by the name the caller gave them. */
final class Consumers {
    private final Producers producers;
    private final Map<String, Runnable> stops = new ConcurrentHashMap<>();
    private final Map<String, BlockingQueue<MessageExt>> received = new ConcurrentHashMap<>();
    private final Map<String, DefaultLitePullConsumer> lite = new ConcurrentHashMap<>();
    private final Map<String, DefaultMQPullConsumer> pulling = new ConcurrentHashMap<>();

    Consumers(Producers producers) {
        this.producers = producers;
    }

    void register(Map<String, Driver.Command> commands) {
        commands.put("push.start", this::startPush);
        commands.put("push.take", this::take);
        commands.put("lite.start", this::startLite);
        commands.put("lite.poll", given -> Messages.writeAll(liteOf(given).poll(given.number("timeout_ms"))));
        commands.put("lite.commit", this::commitLite);
        commands.put("pull.start", this::startPull);
        commands.put("pull.queues", this::pullQueues);
        commands.put("pull.pull", this::pull);
        commands.put("pull.offsets", this::offsets);
        commands.put("pull.commit", this::commitPull);
        commands.put("consumer.stop", this::stop);
    }

    private Object startPush(Arguments given) throws Exception {
        String name = given.text("consumer");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(given.text("group"), given.signer(),
            new AllocateMessageQueueAveragely(), given.flag("trace"), null);
        given.configureConsumer(consumer);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        if (given.has("sql")) {
            consumer.subscribe(given.text("topic"), MessageSelector.bySql(given.text("sql")));
        } else {
            consumer.subscribe(given.text("topic"), given.text("tags", "*"));
        }
        BlockingQueue<MessageExt> queue = new LinkedBlockingQueue<>();
        received.put(name, queue);
        Judge judge = new Judge(queue, (int) given.number("fail_first", 0), given.text("reply_with", null));
        if (given.flag("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                judge.accepts(messages) ? ConsumeOrderlyStatus.SUCCESS
                    : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                judge.accepts(messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                    : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
        consumer.start();
        stops.put(name, consumer::shutdown);
        return null;
    }

    /** Up to count messages, waiting at most timeout_ms for all of them together. */
    private Object take(Arguments given) throws Exception {
        BlockingQueue<MessageExt> queue = received.get(given.text("consumer"));
        long count = given.number("count");
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(given.number("timeout_ms"));
        List<MessageExt> taken = new ArrayList<>();
        while (taken.size() < count) {
            MessageExt message = queue.poll(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
            if (message == null) {
                break;
            }
            taken.add(message);
        }
        return Messages.writeAll(taken);
    }

    private Object startLite(Arguments given) throws Exception {
        String name = given.text("consumer");
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(given.text("group"), given.signer());
        given.configureConsumer(consumer);
        consumer.setAutoCommit(!given.flag("manual_commit"));
        if (!given.flag("assign")) {
            consumer.subscribe(given.text("topic"), given.text("tags", "*"));
        }
        consumer.start();
        if (given.flag("assign")) {
            Collection<MessageQueue> queues = consumer.fetchMessageQueues(given.text("topic"));
            consumer.assign(queues);
            for (MessageQueue queue : queues) {
                consumer.seekToBegin(queue);
            }
        }
        lite.put(name, consumer);
        stops.put(name, consumer::shutdown);
        return null;
    }

    private DefaultLitePullConsumer liteOf(Arguments given) {
        return lite.get(given.text("consumer"));
    }

    @SuppressWarnings("deprecation")
    private Object commitLite(Arguments given) {
        liteOf(given).commitSync();
        return null;
    }

    private Object startPull(Arguments given) throws Exception {
        String name = given.text("consumer");
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(given.text("group"), given.signer());
        given.configureConsumer(consumer);
        consumer.start();
        pulling.put(name, consumer);
        stops.put(name, consumer::shutdown);
        return null;
    }

    private Object pullQueues(Arguments given) throws Exception {
        List<Object> shown = new ArrayList<>();
        for (MessageQueue queue : pullOf(given).fetchSubscribeMessageQueues(given.text("topic"))) {
            shown.add(Messages.write(queue));
        }
        return shown;
    }

    private Object pull(Arguments given) throws Exception {
        MessageQueue queue = Messages.readQueue(given.inner("queue"));
        String tags = given.text("tags", "*");
        int limit = (int) given.number("max", 32);
        long offset = given.number("offset");
        PullResult result = given.flag("block")
            ? pullOf(given).pullBlockIfNotFound(queue, tags, offset, limit)
            : pullOf(given).pull(queue, tags, offset, limit);
        List<MessageExt> found = result.getMsgFoundList();
        Map<String, Object> shown = new java.util.LinkedHashMap<>();
        shown.put("status", result.getPullStatus().name());
        shown.put("next", result.getNextBeginOffset());
        shown.put("min", result.getMinOffset());
        shown.put("max", result.getMaxOffset());
        shown.put("messages", Messages.writeAll(found == null ? new ArrayList<MessageExt>() : found));
        return shown;
    }

    private Object offsets(Arguments given) throws Exception {
        MessageQueue queue = Messages.readQueue(given.inner("queue"));
        DefaultMQPullConsumer consumer = pullOf(given);
        Map<String, Object> shown = new java.util.LinkedHashMap<>();
        shown.put("min", consumer.minOffset(queue));
        shown.put("max", consumer.maxOffset(queue));
        shown.put("committed", consumer.fetchConsumeOffset(queue, true));
        if (given.has("time_ms")) {
            shown.put("at_time", consumer.searchOffset(queue, given.number("time_ms")));
        }
        return shown;
    }

    private Object commitPull(Arguments given) throws Exception {
        MessageQueue queue = Messages.readQueue(given.inner("queue"));
        DefaultMQPullConsumer consumer = pullOf(given);
        consumer.updateConsumeOffset(queue, given.number("offset"));
        // Only queues the rebalancer knows are persisted by the timer, so persist this one here.
        consumer.getDefaultMQPullConsumerImpl().getOffsetStore().persist(queue);
        return null;
    }

    private DefaultMQPullConsumer pullOf(Arguments given) {
        return pulling.get(given.text("consumer"));
    }

    private Object stop(Arguments given) {
        Runnable stop = stops.remove(given.text("consumer"));
        if (stop != null) {
            stop.run();
        }
        return null;
    }

    /** Decides what a listener answers: refuses each message some times, may reply to requests. */
    private final class Judge {
        private final BlockingQueue<MessageExt> accepted;
        private final int failFirst;
        private final String replier;
        private final Map<String, AtomicInteger> refused = new ConcurrentHashMap<>();

        Judge(BlockingQueue<MessageExt> accepted, int failFirst, String replier) {
            this.accepted = accepted;
            this.failFirst = failFirst;
            this.replier = replier;
        }

        boolean accepts(List<MessageExt> messages) {
            for (MessageExt message : messages) {
                String id = message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX);
                AtomicInteger count = refused.computeIfAbsent(String.valueOf(id), ignored -> new AtomicInteger());
                if (count.getAndIncrement() < failFirst) {
                    return false;
                }
                reply(message);
                accepted.add(message);
            }
            return true;
        }

        private void reply(MessageExt message) {
            if (replier == null || message.getProperty(MessageConst.PROPERTY_MESSAGE_REPLY_TO_CLIENT) == null) {
                return;
            }
            try {
                DefaultMQProducer producer = producers.get(replier);
                byte[] body = ("reply to " + new String(message.getBody(), "UTF-8")).getBytes("UTF-8");
                producer.send(MessageUtil.createReplyMessage(message, body), 5_000);
            } catch (Exception error) {
                throw new IllegalStateException("the reply could not be sent", error);
            }
        }
    }
}
