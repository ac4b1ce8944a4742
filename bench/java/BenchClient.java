import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Random;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;

import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;

/**
 * Apache's Java producer as a program that obeys lines, so that one warm JVM serves every round.
 *
 * <p>A line is {@code PATH COUNT THREADS BATCH WINDOW TOPIC BODY_SIZE SHAPE}; the answer is {@code ok
 * MESSAGES SECONDS CPU_SECONDS P50_SECONDS P99_SECONDS} or {@code error TEXT}. CPU counts all threads
 * of this process. Shapes are those of {@code bench/shapes.py}: messages are made as they are sent, each
 * with a body of its own.
 */
public final class BenchClient {
    private static final com.sun.management.OperatingSystemMXBean SYSTEM =
        (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    /** A busy machine makes answers late, which is no failure of the client's. */
    private static final int TIMEOUT_MS = 30_000;

    private static final MessageQueueSelector BY_HASH = new SelectMessageQueueByHash();

    private final DefaultMQProducer plain;
    private final DefaultMQProducer batching;

    private BenchClient(String nameServer) throws Exception {
        plain = start(nameServer, "bench-java", false);
        batching = start(nameServer, "bench-java-batching", true);
    }

    private static DefaultMQProducer start(String nameServer, String group, boolean autoBatch)
        throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName(group);
        producer.setSendMsgTimeout(TIMEOUT_MS);
        if (autoBatch) {
            producer.setAutoBatch(true);
        }
        producer.start();
        return producer;
    }

    public static void main(String[] words) throws Exception {
        // The client prints to standard output, which is for answers alone.
        PrintStream answers = System.out;
        System.setOut(System.err);
        BenchClient client = new BenchClient(words[0]);
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
            Task task = new Task(words);
            long cpu = SYSTEM.getProcessCpuTime();
            long began = System.nanoTime();
            long[] latencies = run(task);
            double seconds = (System.nanoTime() - began) / 1e9;
            double used = (SYSTEM.getProcessCpuTime() - cpu) / 1e9;
            Arrays.sort(latencies);
            int n = latencies.length;
            double p50 = n == 0 ? 0 : latencies[n / 2] / 1e9;
            double p99 = n == 0 ? 0 : latencies[(int) Math.min(n - 1L, n * 99L / 100)] / 1e9;
            return String.format(
                Locale.ROOT, "ok %d %.9f %.9f %.9f %.9f", task.messages(), seconds, used, p50, p99);
        } catch (Throwable error) {
            return "error " + String.valueOf(error).replace('\n', ' ');
        }
    }

    private long[] run(Task task) throws Exception {
        switch (task.path) {
            case "sync":
                return sync(task);
            case "async":
                return fly(task, plain);
            case "autobatch":
                return fly(task, batching);
            case "batch":
                return fly(task, plain);
            case "oneway":
                return oneway(task);
            default:
                throw new IllegalArgumentException("no such path: " + task.path);
        }
    }

    /** One message after another in each thread. */
    private long[] sync(Task task) throws Exception {
        int share = task.count / task.threads;
        long[] latencies = new long[share * task.threads];
        List<Thread> threads = new ArrayList<>();
        Failures failures = new Failures();
        for (int number = 0; number < task.threads; number++) {
            int start = number * share;
            Thread thread = new Thread(() -> {
                for (int i = start; i < start + share; i++) {
                    long began = System.nanoTime();
                    try {
                        if (task.isSharded) {
                            plain.send(task.make(i), BY_HASH, task.shard(i));
                        } else {
                            plain.send(task.make(i));
                        }
                    } catch (Exception error) {
                        failures.add(error);
                    }
                    latencies[i] = System.nanoTime() - began;
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        failures.check();
        return latencies;
    }

    /** Messages without an answer, then one with: before it, all have been written. */
    private long[] oneway(Task task) throws Exception {
        for (int i = 0; i < task.count; i++) {
            if (task.isSharded) {
                plain.sendOneway(task.make(i), BY_HASH, task.shard(i));
            } else {
                plain.sendOneway(task.make(i));
            }
        }
        plain.send(task.make(task.count));
        return new long[0];
    }

    /** Messages, or batches of them, with callbacks; at most so many without an answer. */
    private long[] fly(Task task, DefaultMQProducer producer) throws Exception {
        Semaphore room = new Semaphore(task.window);
        Failures failures = new Failures();
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                room.release();
            }

            @Override
            public void onException(Throwable error) {
                failures.add(error);
                room.release();
            }
        };
        for (int i = 0; i < task.count / task.batch; i++) {
            room.acquire();
            if (task.batch > 1) {
                List<Message> messages = new ArrayList<>(task.batch);
                for (int j = 0; j < task.batch; j++) {
                    messages.add(task.make(i * task.batch + j));
                }
                producer.send(messages, callback);
            } else if (task.isSharded) {
                producer.send(task.make(i), BY_HASH, task.shard(i), callback);
            } else {
                producer.send(task.make(i), callback);
            }
        }
        if (!room.tryAcquire(task.window, 60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("answers are missing after 60 s");
        }
        failures.check();
        return new long[0];
    }

    /** How many sends failed, and what the first one failed with. */
    private static final class Failures {
        private final AtomicLong count = new AtomicLong();
        private final AtomicReference<Throwable> first = new AtomicReference<>();

        void add(Throwable error) {
            count.incrementAndGet();
            first.compareAndSet(null, error);
        }

        void check() {
            if (count.get() > 0) {
                throw new IllegalStateException(count.get() + " sends failed: " + first.get());
            }
        }
    }

    /** What is to be done, and the messages of it. */
    private static final class Task {
        private static final int PLACES = 1 << 20;
        private static final int SHARDS = 997;
        private static byte[] noise = new byte[0];
        private final String path;
        private final int count;
        private final int threads;
        private final int batch;
        private final int window;
        private final String topic;
        private final int size;
        private final boolean isTagged;
        private final boolean hasProperties;
        private final boolean isSharded;

        Task(String[] words) {
            path = words[0];
            count = Integer.parseInt(words[1]);
            threads = Integer.parseInt(words[2]);
            batch = Integer.parseInt(words[3]);
            window = Integer.parseInt(words[4]);
            topic = words[5];
            size = Integer.parseInt(words[6]);
            String shape = words[7];
            isSharded = shape.equals("sharded");
            hasProperties = isSharded || shape.equals("rich");
            isTagged = hasProperties || shape.equals("key");
            if (!isTagged && !shape.equals("body")) {
                throw new IllegalArgumentException("no such shape: " + shape);
            }
            if (noise.length != PLACES + size) {
                noise = new byte[PLACES + size];
                new Random(size).nextBytes(noise);
            }
        }

        Message make(int number) {
            int place = number & (PLACES - 1);
            byte[] body = Arrays.copyOfRange(noise, place, place + size);
            if (!isTagged) {
                return new Message(topic, body);
            }
            Message message = new Message(topic, "pay", "order-" + number, body);
            if (hasProperties) {
                message.putUserProperty("region", "eu-west");
                message.putUserProperty("amount", Integer.toString(number));
                message.putUserProperty("trace", trace(number));
            }
            return message;
        }

        String shard(int number) {
            return "user-" + number % SHARDS;
        }

        private static String trace(int number) {
            String digits = Integer.toHexString(number);
            return "0000000000000000".substring(digits.length()) + digits;
        }

        int messages() {
            return path.equals("sync") ? count / threads * threads : count / batch * batch;
        }
    }
}
