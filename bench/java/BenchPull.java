import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Reads a topic from its beginning with pull loops, queue by queue, in as many threads as asked for.
 *
 * A line of input is "pull COUNT THREADS BATCH WINDOW TOPIC SIZE SHAPE"; the answer is
 * "ok MESSAGES SECONDS CPU 0 0". Keys and bodies are looked at, as a program that reads would; "look"
 * looks at tags and a property, too.
 */
public class BenchPull {
    private static final int MOST_A_PULL = 1024;

    public static void main(String[] arguments) throws Exception {
        // The client's logging writes to standard output when it starts.
        PrintStream answers = System.out;
        System.setOut(System.err);
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("bench-pull");
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setInstanceName("bench-pull-" + ProcessHandle.current().pid());
        consumer.start();
        answers.println("ready");
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ");
            try {
                answers.println(run(consumer, words));
            } catch (Exception error) {
                answers.println("failed " + error.toString().replace('\n', ' '));
            }
        }
        consumer.shutdown();
    }

    private static String run(DefaultMQPullConsumer consumer, String[] words) throws Exception {
        String topic = words[5];
        int threads = Integer.parseInt(words[2]);
        boolean isLooking = words[0].equals("look");
        ConcurrentLinkedQueue<MessageQueue> queues =
            new ConcurrentLinkedQueue<>(consumer.fetchSubscribeMessageQueues(topic));
        AtomicLong read = new AtomicLong();
        AtomicLong bytes = new AtomicLong();
        Map<String, Exception> failed = new ConcurrentHashMap<>();
        List<Thread> workers = new ArrayList<>();
        double busy = cpu();
        long began = System.nanoTime();
        for (int number = 0; number < threads; number++) {
            Thread worker = new Thread(() -> {
                MessageQueue queue;
                try {
                    while ((queue = queues.poll()) != null) {
                        readQueue(consumer, queue, isLooking, read, bytes);
                    }
                } catch (Exception error) {
                    failed.put("error", error);
                }
            });
            worker.start();
            workers.add(worker);
        }
        for (Thread worker : workers) {
            worker.join();
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        if (!failed.isEmpty()) {
            throw failed.get("error");
        }
        return String.format("ok %d %.6f %.6f 0 0", read.get(), seconds, cpu() - busy);
    }

    private static void readQueue(
            DefaultMQPullConsumer consumer, MessageQueue queue, boolean isLooking, AtomicLong read,
            AtomicLong bytes) throws Exception {
        long offset = consumer.minOffset(queue);
        long end = consumer.maxOffset(queue);
        while (offset < end) {
            PullResult result = consumer.pull(queue, "*", offset, MOST_A_PULL);
            if (result.getPullStatus() != PullStatus.FOUND) {
                throw new IllegalStateException(queue + " at " + offset + ": " + result.getPullStatus());
            }
            long size = 0;
            for (MessageExt message : result.getMsgFoundList()) {
                size += message.getBody().length + length(message.getKeys());
                if (isLooking) {
                    size += length(message.getTags()) + length(message.getUserProperty("amount"));
                }
            }
            bytes.addAndGet(size);
            read.addAndGet(result.getMsgFoundList().size());
            offset = result.getNextBeginOffset();
        }
    }

    private static int length(String text) {
        return text == null ? 0 : text.length();
    }

    private static double cpu() {
        return ((com.sun.management.OperatingSystemMXBean)
            java.lang.management.ManagementFactory.getOperatingSystemMXBean())
            .getProcessCpuTime() / 1e9;
    }
}
