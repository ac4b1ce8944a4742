import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Apache's push consumer as a program that obeys lines, so that one warm JVM serves every round.
 *
 * <p>A line is {@code PATH COUNT THREADS BATCH WINDOW TOPIC BODY_SIZE SHAPE}, as for {@code BenchClient}; what
 * has no meaning here is ignored. {@code consume} reads a topic from its start as a new group, {@code
 * look} does it with a handler that looks at keys, tags, body and a property, {@code latency} reads what comes: bodies are the moments at which they were sent, by the clock that {@code
 * System.nanoTime} reads. Time counts from the first message on: joining the group is not measured.
 */
public final class BenchConsumer {
    private static final com.sun.management.OperatingSystemMXBean SYSTEM =
        (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static final int LIMIT_SECONDS = 120;
    /** Messages that are seen before latencies count. */
    private static final int WARM = 100;
    /** Nanoseconds from the first message on; what was sent before that may be a backlog. */
    private static final long SETTLED = 1_000_000_000L;

    private final String nameServer;
    private int number;

    private BenchConsumer(String nameServer) {
        this.nameServer = nameServer;
    }

    public static void main(String[] words) throws Exception {
        // The client prints to standard output, which is for answers alone.
        PrintStream answers = System.out;
        System.setOut(System.err);
        BenchConsumer client = new BenchConsumer(words[0]);
        answers.println("ready");
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.println(client.obey(line.split(" ")));
        }
        System.exit(0);
    }

    private String obey(String[] words) {
        try {
            int count = Integer.parseInt(words[1]);
            int batch = Integer.parseInt(words[3]);
            switch (words[0]) {
                case "consume":
                    return consume(words[5], count, batch, false, false);
                case "look":
                    return consume(words[5], count, batch, false, true);
                case "latency":
                    return consume(words[5], count + WARM, 1, true, false);
                default:
                    throw new IllegalArgumentException("no such path: " + words[0]);
            }
        } catch (Throwable error) {
            return "error " + String.valueOf(error).replace('\n', ' ');
        }
    }

    private DefaultMQPushConsumer make(String topic, int batch, boolean isLatest) throws Exception {
        String group = "bench-java-" + ProcessHandle.current().pid() + "-" + ++number;
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(group);
        consumer.setConsumeFromWhere(
            isLatest
                ? ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
                : ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(batch);
        consumer.subscribe(topic, "*");
        return consumer;
    }

    private String consume(String topic, int count, int batch, boolean isLatency, boolean isLooking)
        throws Exception {
        DefaultMQPushConsumer consumer = make(topic, batch, isLatency);
        AtomicInteger seen = new AtomicInteger();
        AtomicLong from = new AtomicLong();
        AtomicLong began = new AtomicLong();
        AtomicLong cpuBefore = new AtomicLong();
        AtomicLong ended = new AtomicLong();
        AtomicLong bytes = new AtomicLong();
        long[] latencies = new long[isLatency ? count : 0];
        CountDownLatch done = new CountDownLatch(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long now = System.nanoTime();
            int size = messages.size();
            long latency = 0;
            if (isLatency) {
                long sent = sentAt(messages.get(0));
                if (sent < from.updateAndGet(known -> known == 0 ? now + SETTLED : known)) {
                    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                }
                latency = now - sent;
            }
            if (isLooking) {
                long looked = 0;
                for (MessageExt message : messages) {
                    looked += look(message);
                }
                bytes.addAndGet(looked);
            }
            int place = seen.getAndAdd(size);
            if (place == 0) {
                began.set(now);
                cpuBefore.set(SYSTEM.getProcessCpuTime());
            }
            if (isLatency && place < count) {
                latencies[place] = latency;
            }
            if (place < count && place + size >= count) {
                ended.set(System.nanoTime());
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            if (!done.await(LIMIT_SECONDS, TimeUnit.SECONDS)) {
                throw new IllegalStateException(seen.get() + " of " + count + " messages came");
            }
            double used = (SYSTEM.getProcessCpuTime() - cpuBefore.get()) / 1e9;
            return answer(count, (ended.get() - began.get()) / 1e9, used, latencies);
        } finally {
            consumer.shutdown();
        }
    }

    /** What a handler does before it begins: it looks at keys, tags, body and one property. */
    private static long look(MessageExt message) {
        String keys = message.getKeys();
        String tags = message.getTags();
        String amount = message.getUserProperty("amount");
        return message.getBody().length
            + (keys == null ? 0 : keys.length())
            + (tags == null ? 0 : tags.length())
            + (amount == null ? 0 : amount.length());
    }

    private static long sentAt(MessageExt message) {
        return Long.parseLong(new String(message.getBody(), StandardCharsets.US_ASCII).trim());
    }

    private static String answer(int count, double seconds, double used, long[] latencies) {
        long[] counted =
            latencies.length == 0 ? latencies : Arrays.copyOfRange(latencies, WARM, latencies.length);
        Arrays.sort(counted);
        int n = counted.length;
        double p50 = n == 0 ? 0 : counted[n / 2] / 1e9;
        double p99 = n == 0 ? 0 : counted[(int) Math.min(n - 1L, n * 99L / 100)] / 1e9;
        return String.format(Locale.ROOT, "ok %d %.9f %.9f %.9f %.9f", count, seconds, used, p50, p99);
    }
}
