import java.io.DataInputStream;
import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import org.apache.rocketmq.client.latency.LatencyFaultTolerance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * Prints which sends of Apache's producer are reported to its fault table, and as what.
 *
 * <p>A name server and a broker that answer by the name of the topic run in this process, on the
 * loopback interface. Each send is tried once; a vector lists for each report whether it was one of a
 * failure and whether the broker was called reachable, sorted, for an asynchronous send may report
 * twice in either order.
 */
final class FaultMarks {
    /** Those that end by a timeout have a producer each, so that they wait side by side. */
    private static final String[][] FATES = {
        {"stored", "code-1", "code-2", "code-10", "code-13", "code-14", "code-16", "code-17", "code-215",
            "refused"},
        {"closed"},
        {"silent"}};
    private static final String[] MODES = {"blocking", "async", "oneway"};
    private static final String[] PLACES = {"default", "queue", "selector"};
    private static final int TIMEOUT = 10000;
    private static final int PATIENCE = 700;
    private final ServerSocket nameServer = new ServerSocket(0, 100, InetAddress.getLoopbackAddress());
    private final ServerSocket broker = new ServerSocket(0, 100, InetAddress.getLoopbackAddress());
    private final int closedPort;

    private FaultMarks() throws IOException {
        try (ServerSocket short_lived = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            closedPort = short_lived.getLocalPort();
        }
        daemon(() -> accept(nameServer));
        daemon(() -> accept(broker));
    }

    static void print() throws Exception {
        FaultMarks server = new FaultMarks();
        List<Sends> all = new ArrayList<>();
        for (String policy : FaultVectors.is5() ? new String[] {"java5", "java5-detector"} : new String[] {"java4"}) {
            for (String[] fates : FATES) {
                Sends sends = server.new Sends(policy, fates);
                sends.start();
                all.add(sends);
            }
        }
        for (Sends sends : all) {
            sends.join();
            sends.found.forEach(Runnable::run);
        }
    }

    /** Sends that meet some fates, one after another, by one producer. */
    private final class Sends extends Thread {
        final List<Runnable> found = new ArrayList<>();
        private final List<Object> reports = Collections.synchronizedList(new ArrayList<>());
        private final String policy;
        private final String[] fates;

        Sends(String policy, String[] fates) {
            this.policy = policy;
            this.fates = fates;
        }

        @Override
        public void run() {
            try {
                DefaultMQProducer producer = producer();
                for (String fate : fates) {
                    producer.fetchPublishMessageQueues(fate);
                    for (String mode : MODES) {
                        for (String place : PLACES) {
                            reports.clear();
                            send(producer, fate, mode, place);
                            List<Object> told = new ArrayList<>(reports);
                            told.sort((one, other) -> one.toString().compareTo(other.toString()));
                            found.add(() -> FaultVectors.print("marks", "policy", policy, "fate", fate,
                                "mode", mode, "place", place, "reports", told));
                        }
                    }
                }
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        }

        private DefaultMQProducer producer() throws Exception {
            DefaultMQProducer producer = new DefaultMQProducer("marks");
            producer.setNamesrvAddr("127.0.0.1:" + nameServer.getLocalPort());
            producer.setInstanceName(policy + fates[0]);
            producer.setVipChannelEnabled(false);
            producer.setRetryTimesWhenSendFailed(0);
            producer.setRetryTimesWhenSendAsyncFailed(0);
            producer.setSendLatencyFaultEnable(true);
            // A failure counts as 10 s at least; no pause of a busy machine looks like one.
            producer.setLatencyMax(new long[] {0, 9000});
            producer.setNotAvailableDuration(new long[] {0, 1});
            if (policy.equals("java5-detector")) {
                DefaultMQProducer.class.getMethod("setStartDetectorEnable", boolean.class).invoke(producer, true);
            }
            producer.start();
            watch(producer, reports);
            return producer;
        }
    }

    private static void send(DefaultMQProducer producer, String fate, String mode, String place) throws Exception {
        Message message = new Message(fate, new byte[] {1});
        MessageQueue queue = new MessageQueue(fate, fate, 0);
        MessageQueueSelector first = (queues, which, argument) -> queues.get(0);
        CountDownLatch over = new CountDownLatch(1);
        int timeout = fate.equals("silent") || fate.equals("closed") ? PATIENCE : TIMEOUT;
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                over.countDown();
            }

            @Override
            public void onException(Throwable error) {
                over.countDown();
            }
        };
        try {
            if (mode.equals("blocking")) {
                if (place.equals("default")) {
                    producer.send(message, timeout);
                } else if (place.equals("queue")) {
                    producer.send(message, queue, timeout);
                } else {
                    producer.send(message, first, null, timeout);
                }
            } else if (mode.equals("async")) {
                if (place.equals("default")) {
                    producer.send(message, callback, timeout);
                } else if (place.equals("queue")) {
                    producer.send(message, queue, callback, timeout);
                } else {
                    producer.send(message, first, null, callback, timeout);
                }
                over.await(30, TimeUnit.SECONDS);
                Thread.sleep(50);
            } else if (place.equals("default")) {
                producer.sendOneway(message);
            } else if (place.equals("queue")) {
                producer.sendOneway(message, queue);
            } else {
                producer.sendOneway(message, first, null);
            }
        } catch (Exception expected) {
            return;
        }
    }

    /** Puts a table in between that notes what is reported, and passes it on. */
    private static void watch(DefaultMQProducer producer, List<Object> reports) throws Exception {
        Object strategy = FaultVectors.get(producer.getDefaultMQProducerImpl(), "mqFaultStrategy");
        Object table = FaultVectors.get(strategy, "latencyFaultTolerance");
        Object noting = Proxy.newProxyInstance(
            FaultMarks.class.getClassLoader(),
            new Class<?>[] {LatencyFaultTolerance.class},
            (proxy, method, values) -> {
                if (method.getName().equals("updateFaultItem")) {
                    boolean reachable = values.length < 4 || (Boolean) values[3];
                    reports.add(List.of((Long) values[2] > 0, reachable));
                }
                try {
                    return method.invoke(table, values);
                } catch (InvocationTargetException error) {
                    throw error.getCause();
                }
            });
        FaultVectors.set(strategy, "latencyFaultTolerance", noting);
    }

    // ---------------------------------------------------------------- the servers

    private static void daemon(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        thread.start();
    }

    private void accept(ServerSocket listener) {
        try {
            while (true) {
                Socket socket = listener.accept();
                daemon(() -> serve(socket));
            }
        } catch (IOException closed) {
            return;
        }
    }

    private void serve(Socket socket) {
        try (Socket served = socket) {
            DataInputStream input = new DataInputStream(served.getInputStream());
            while (true) {
                byte[] frame = new byte[input.readInt()];
                input.readFully(frame);
                RemotingCommand request = RemotingCommand.decode(ByteBuffer.wrap(frame));
                if (!answer(served, request)) {
                    return;
                }
            }
        } catch (Exception gone) {
            return;
        }
    }

    private boolean answer(Socket socket, RemotingCommand request) throws Exception {
        int code = request.getCode();
        if (code == 105) {
            String topic = request.getExtFields().get("topic");
            return reply(socket, request, 0, route(topic));
        }
        if (code != 310 && code != 10) {
            return reply(socket, request, 0, null);
        }
        String fate = request.getExtFields().get(code == 310 ? "b" : "topic");
        if (fate.equals("closed")) {
            return false;
        }
        int told = fate.startsWith("code-") ? Integer.parseInt(fate.substring(5)) : 0;
        return fate.equals("silent") || reply(socket, request, told, null);
    }

    private byte[] route(String topic) {
        int port = topic.equals("refused") ? closedPort : broker.getLocalPort();
        String text = "{\"brokerDatas\":[{\"brokerAddrs\":{\"0\":\"127.0.0.1:" + port + "\"},\"brokerName\":\""
            + topic + "\",\"cluster\":\"c\"}],\"queueDatas\":[{\"brokerName\":\"" + topic
            + "\",\"perm\":6,\"readQueueNums\":1,\"writeQueueNums\":1}]}";
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static boolean reply(Socket socket, RemotingCommand request, int code, byte[] body) throws Exception {
        if (request.isOnewayRPC()) {
            return true;
        }
        RemotingCommand answer = RemotingCommand.createResponseCommand(code, "as asked");
        answer.setOpaque(request.getOpaque());
        answer.addExtField("msgId", "7F00000100002A9F0000000000000000");
        answer.addExtField("queueId", "0");
        answer.addExtField("queueOffset", "0");
        answer.setBody(body);
        ByteBuffer bytes = answer.encode();
        synchronized (socket) {
            socket.getOutputStream().write(bytes.array(), 0, bytes.limit());
            socket.getOutputStream().flush();
        }
        return true;
    }
}
