import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;

import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.common.ThreadLocalIndex;
import org.apache.rocketmq.client.impl.producer.TopicPublishInfo;
import org.apache.rocketmq.client.latency.LatencyFaultTolerance;
import org.apache.rocketmq.client.latency.MQFaultStrategy;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/**
 * Prints what Apache's own fault strategy decides, one vector of JSON a line.
 *
 * <p>Four kinds: "duration" (how long a latency leaves a broker out), "table" (the same by tables of the
 * user's own), "history" (what several
 * reports of one broker come to) and "choice" (which queue is taken, from which index). The same
 * source is compiled against 4.x and 5.x, whose methods differ; reflection finds those that are there.
 */
public final class FaultVectors {
    private static final long[] LATENCIES = {
        0, 1, 49, 50, 51, 99, 100, 549, 550, 551, 999, 1000, 1799, 1800, 1999, 2000, 2999, 3000, 4999,
        5000, 9999, 10000, 14999, 15000, 29999, 30000, 100000};
    private static final long[] SEEN = {2, 70, 300, 600, 1200, 2500, 4000, 7000, 20000};
    /** Latencies, and for how long each leaves a broker out. */
    private static final long[][][] TABLES = {
        {{0, 9000}, {0, 1000}},
        {{100, 200, 20000}, {0, 5000, 60000}},
        {{50}, {7000}},
        {{1, 2000, 3000}, {90000, 4000, 2000}}};
    private static final int WORLDS = 120;
    private static final int HISTORIES = 60;

    private FaultVectors() {
    }

    public static void main(String[] arguments) throws Exception {
        durations();
        tables();
        histories();
        for (int seed = 0; seed < WORLDS; seed++) {
            choices(seed);
        }
        FaultMarks.print();
        System.exit(0);
    }

    private static void durations() throws Exception {
        for (long latency : LATENCIES) {
            for (boolean isolated : new boolean[] {false, true}) {
                MQFaultStrategy strategy = strategy();
                report(strategy, "b", latency, isolated, true);
                print("duration", "latency", latency, "failed", isolated, "out", out(strategy, "b"),
                    "ranked", number(item(strategy, "b"), "currentLatency"));
            }
        }
    }

    private static void tables() throws Exception {
        for (long[][] table : TABLES) {
            for (long latency : LATENCIES) {
                for (boolean isolated : new boolean[] {false, true}) {
                    MQFaultStrategy strategy = strategy();
                    strategy.setLatencyMax(table[0]);
                    strategy.setNotAvailableDuration(table[1]);
                    report(strategy, "b", latency, isolated, true);
                    print("table", "latencies", numbers(table[0]), "durations", numbers(table[1]), "latency",
                        latency, "failed", isolated, "out", out(strategy, "b"));
                }
            }
        }
    }

    private static List<Object> numbers(long[] values) {
        List<Object> all = new ArrayList<>();
        for (long value : values) {
            all.add(value);
        }
        return all;
    }

    private static void histories() throws Exception {
        for (int seed = 0; seed < HISTORIES; seed++) {
            Random random = new Random(seed);
            MQFaultStrategy strategy = strategy();
            List<Object> reports = new ArrayList<>();
            for (int count = 2 + random.nextInt(4); count > 0; count--) {
                long latency = SEEN[random.nextInt(SEEN.length)];
                boolean failed = random.nextInt(4) == 0;
                report(strategy, "b", latency, failed, true);
                reports.add(List.of(latency, failed, out(strategy, "b")));
            }
            print("history", "reports", reports);
        }
    }

    private static void choices(int seed) throws Exception {
        Random random = new Random(1000 + seed);
        int brokers = 1 + random.nextInt(4);
        int queues = 1 + random.nextInt(3);
        List<Object> reports = new ArrayList<>();
        List<Long> latencies = new ArrayList<>();
        for (int broker = 0; broker < brokers; broker++) {
            // Equal latencies would be ranked by the milliseconds between two reports.
            long latency = SEEN[random.nextInt(SEEN.length)];
            boolean failed = random.nextInt(3) == 0;
            if (random.nextInt(4) > 0 && !latencies.contains(latency)) {
                latencies.add(latency);
                reports.add(List.of("b" + broker, latency, failed));
            }
        }
        int index = random.nextInt(1000);
        int worst = random.nextInt(1000);
        for (String policy : is5() ? new String[] {"java5", "java5-detector", "off"} : new String[] {"java4", "off"}) {
            for (int last = -1; last < brokers; last++) {
                choice(policy, brokers, queues, reports, index, worst, last < 0 ? null : "b" + last);
            }
        }
    }

    private static void choice(String policy, int brokers, int queues, List<Object> reports, int index,
        int worst, String last) throws Exception {
        MQFaultStrategy strategy = strategy();
        for (Object each : reports) {
            List<?> report = (List<?>) each;
            boolean failed = (Boolean) report.get(2);
            boolean reachable = !(failed && policy.equals("java5-detector"));
            report(strategy, (String) report.get(0), (Long) report.get(1), failed, reachable);
        }
        strategy.setSendLatencyFaultEnable(!policy.equals("off"));
        setIndex((ThreadLocalIndex) get(tolerance(strategy), "whichItemWorst"), worst);
        TopicPublishInfo info = topic(brokers, queues);
        setIndex(info.getSendWhichQueue(), index);
        MessageQueue chosen = choose(strategy, info, last);
        print("choice", "policy", policy, "brokers", brokers, "queues", queues, "reports", reports,
            "index", index, "worst", worst, "last", last, "broker", chosen.getBrokerName(),
            "queue", chosen.getQueueId(), "next", getIndex(info.getSendWhichQueue()));
    }

    // ---------------------------------------------------------------- what differs by release

    static boolean is5() {
        return MQFaultStrategy.class.getConstructors()[0].getParameterCount() > 0;
    }

    private static MQFaultStrategy strategy() throws Exception {
        MQFaultStrategy strategy = null;
        for (Constructor<?> constructor : MQFaultStrategy.class.getConstructors()) {
            if (constructor.getParameterCount() == 0) {
                strategy = (MQFaultStrategy) constructor.newInstance();
            } else if (constructor.getParameterCount() == 3) {
                strategy = (MQFaultStrategy) constructor.newInstance(new ClientConfig(), null, null);
            }
        }
        strategy.setSendLatencyFaultEnable(true);
        return strategy;
    }

    private static void report(MQFaultStrategy strategy, String broker, long latency, boolean isolated,
        boolean reachable) throws Exception {
        if (is5()) {
            method(MQFaultStrategy.class, "updateFaultItem").invoke(strategy, broker, latency, isolated, reachable);
        } else {
            method(MQFaultStrategy.class, "updateFaultItem").invoke(strategy, broker, latency, isolated);
        }
    }

    private static MessageQueue choose(MQFaultStrategy strategy, TopicPublishInfo info, String last)
        throws Exception {
        Method select = method(MQFaultStrategy.class, "selectOneMessageQueue");
        // A reset goes to a random index, which no vector can tell.
        return (MessageQueue) (is5() ? select.invoke(strategy, info, last, false) : select.invoke(strategy, info, last));
    }

    private static TopicPublishInfo topic(int brokers, int queues) throws Exception {
        TopicPublishInfo info = new TopicPublishInfo();
        List<MessageQueue> all = new ArrayList<>();
        StringBuilder route = new StringBuilder("{\"brokerDatas\":[],\"queueDatas\":[");
        for (int broker = 0; broker < brokers; broker++) {
            route.append(broker == 0 ? "" : ",").append("{\"brokerName\":\"b" + broker + "\",\"perm\":6,"
                + "\"readQueueNums\":" + queues + ",\"writeQueueNums\":" + queues + "}");
            for (int queue = 0; queue < queues; queue++) {
                all.add(new MessageQueue("t", "b" + broker, queue));
            }
        }
        info.setMessageQueueList(all);
        Method set = method(TopicPublishInfo.class, "setTopicRouteData");
        byte[] text = route.append("]}").toString().getBytes(StandardCharsets.UTF_8);
        set.invoke(info, RemotingSerializable.decode(text, set.getParameterTypes()[0]));
        return info;
    }

    // ---------------------------------------------------------------- reflection

    private static LatencyFaultTolerance<?> tolerance(MQFaultStrategy strategy) throws Exception {
        return (LatencyFaultTolerance<?>) get(strategy, "latencyFaultTolerance");
    }

    private static Object item(MQFaultStrategy strategy, String broker) throws Exception {
        return ((Map<?, ?>) get(tolerance(strategy), "faultItemTable")).get(broker);
    }

    /** How long a broker is left out from now on; whole seconds, for the clock goes on meanwhile. */
    private static long out(MQFaultStrategy strategy, String broker) throws Exception {
        long left = number(item(strategy, broker), "startTimestamp") - System.currentTimeMillis();
        return left <= 0 ? 0 : Math.round(left / 1000.0) * 1000;
    }

    private static long number(Object owner, String name) throws Exception {
        return (Long) get(owner, name);
    }

    static Object get(Object owner, String name) throws Exception {
        Field field = owner.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(owner);
    }

    static void set(Object owner, String name, Object value) throws Exception {
        Field field = owner.getClass().getDeclaredField(name);
        field.setAccessible(true);
        field.set(owner, value);
    }

    @SuppressWarnings("unchecked")
    private static void setIndex(ThreadLocalIndex index, int value) throws Exception {
        ((ThreadLocal<Integer>) get(index, "threadLocalIndex")).set(value);
    }

    @SuppressWarnings("unchecked")
    private static int getIndex(ThreadLocalIndex index) throws Exception {
        return ((ThreadLocal<Integer>) get(index, "threadLocalIndex")).get();
    }

    private static Method method(Class<?> owner, String name) {
        for (Method method : owner.getMethods()) {
            if (method.getName().equals(name)) {
                return method;
            }
        }
        throw new IllegalStateException(owner + " has no " + name);
    }

    // ---------------------------------------------------------------- JSON

    static synchronized void print(String kind, Object... pairs) {
        Map<String, Object> all = new TreeMap<>();
        for (int index = 0; index < pairs.length; index += 2) {
            all.put((String) pairs[index], pairs[index + 1]);
        }
        StringBuilder line = new StringBuilder("{\"kind\":\"" + kind + "\"");
        all.forEach((name, value) -> line.append(",\"" + name + "\":" + json(value)));
        System.out.println(line.append("}"));
    }

    private static String json(Object value) {
        if (value instanceof String) {
            return "\"" + value + "\"";
        }
        if (value instanceof List) {
            List<String> parts = new ArrayList<>();
            ((List<?>) value).forEach(each -> parts.add(json(each)));
            return "[" + String.join(",", parts) + "]";
        }
        return String.valueOf(value);
    }
}
