import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Apache's push consumer in POP mode as a program that obeys lines, as {@code BenchConsumer} does: {@code receive}
 * reads a topic from its start as a new group with an empty handler. Time counts from the first message on.
 */
public final class BenchReceive {
    private static final int LIMIT_SECONDS = 120;
    private int number;
    private final String nameServer;
    private final DefaultMQAdminExt admin = new DefaultMQAdminExt();

    private BenchReceive(String nameServer) throws Exception {
        this.nameServer = nameServer;
        admin.setNamesrvAddr(nameServer);
        admin.setInstanceName("bench-admin");
        admin.start();
    }

    public static void main(String[] words) throws Exception {
        // The codes of POP do not fit into Apache's binary headers.
        System.setProperty("rocketmq.serialize.type", "JSON");
        PrintStream answers = System.out;
        System.setOut(System.err);
        BenchReceive client = new BenchReceive(words[0]);
        answers.println("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] given = line.split(" ");
            try {
                answers.println(client.receive(given[5], Integer.parseInt(given[1]), Integer.parseInt(given[3])));
            } catch (Throwable error) {
                answers.println("error " + String.valueOf(error).replace('\n', ' '));
            }
        }
        System.exit(0);
    }

    private String receive(String topic, int count, int batch) throws Exception {
        String group = "bench-pop-" + ProcessHandle.current().pid() + "-" + ++number;
        for (BrokerData broker : admin.examineTopicRouteInfo(topic).getBrokerDatas()) {
            admin.setMessageRequestMode(broker.selectBrokerAddr(), topic, group, MessageRequestMode.POP, 8, 5000);
        }
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(group);
        consumer.setClientRebalance(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(batch);
        consumer.subscribe(topic, "*");
        AtomicInteger seen = new AtomicInteger();
        AtomicLong began = new AtomicLong();
        AtomicLong ended = new AtomicLong();
        AtomicLong cpuBefore = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        com.sun.management.OperatingSystemMXBean system =
            (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            int place = seen.getAndAdd(messages.size());
            if (place == 0) {
                began.set(System.nanoTime());
                cpuBefore.set(system.getProcessCpuTime());
            }
            if (place < count && place + messages.size() >= count) {
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
            double seconds = (ended.get() - began.get()) / 1e9;
            double used = (system.getProcessCpuTime() - cpuBefore.get()) / 1e9;
            return String.format(Locale.ROOT, "ok %d %.9f %.9f 0 0", count, seconds, used);
        } finally {
            consumer.shutdown();
        }
    }
}
