import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Locale;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;

import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.header.EndTransactionRequestHeader;

/**
 * Transactions and requests of Apache's client as a program that obeys lines, as {@code BenchClient} does:
 * {@code transactions} commits each at once, {@code answered} does so and waits for the broker's answer, which
 * Apache's client does not, {@code requests} waits for each reply; all on some threads.
 */
public final class BenchConversation {
    private final TransactionMQProducer transactions;
    private final DefaultMQProducer requests;

    private BenchConversation(String nameServer) throws Exception {
        String name = "bench-conversation-" + ProcessHandle.current().pid();
        transactions = new TransactionMQProducer(name);
        transactions.setNamesrvAddr(nameServer);
        transactions.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        transactions.start();
        requests = new DefaultMQProducer(name + "-requests");
        requests.setNamesrvAddr(nameServer);
        requests.start();
    }

    public static void main(String[] words) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BenchConversation client = new BenchConversation(words[0]);
        answers.println("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] given = line.split(" ");
            int count = Integer.parseInt(given[1]);
            int threads = Integer.parseInt(given[2]);
            try {
                answers.println(client.obey(given[0], given[5], count, threads, Integer.parseInt(given[6])));
            } catch (Throwable error) {
                answers.println("error " + String.valueOf(error).replace('\n', ' '));
            }
        }
        System.exit(0);
    }

    private String obey(String path, String topic, int count, int threads, int size) throws Exception {
        byte[] body = new byte[size];
        Arrays.fill(body, (byte) 'x');
        switch (path) {
            case "transactions":
                return run(count, threads, number ->
                    transactions.sendMessageInTransaction(message(topic, body, number), null));
            case "answered":
                return run(count, threads, number -> commit(message(topic, body, number)));
            case "requests":
                return run(count, threads, number -> request(message(topic, body, number)));
            default:
                throw new IllegalArgumentException("no such path: " + path);
        }
    }

    private static Message message(String topic, byte[] body, int number) {
        return new Message(topic, "tag", "key-" + number, body);
    }

    /** A half message and its commit, both with an answer. */
    private Object commit(Message message) throws Exception {
        String group = requests.getProducerGroup();
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_TRANSACTION_PREPARED, "true");
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_PRODUCER_GROUP, group);
        SendResult half = requests.send(message);
        MQClientInstance client = requests.getDefaultMQProducerImpl().getMqClientFactory();
        EndTransactionRequestHeader header = new EndTransactionRequestHeader();
        header.setTopic(message.getTopic());
        header.setProducerGroup(group);
        header.setTransactionId(half.getTransactionId());
        header.setMsgId(half.getMsgId());
        header.setTranStateTableOffset(half.getQueueOffset());
        header.setCommitLogOffset(MessageDecoder.decodeMessageId(half.getOffsetMsgId()).getOffset());
        header.setCommitOrRollback(MessageSysFlag.TRANSACTION_COMMIT_TYPE);
        header.setBrokerName(half.getMessageQueue().getBrokerName());
        RemotingCommand request = RemotingCommand.createRequestCommand(RequestCode.END_TRANSACTION, header);
        String address = client.findBrokerAddressInPublish(half.getMessageQueue().getBrokerName());
        RemotingCommand answer = client.getMQClientAPIImpl().getRemotingClient().invokeSync(address, request, 3_000);
        if (answer.getCode() != ResponseCode.SUCCESS) {
            throw new IllegalStateException("the commit was refused: " + answer.getRemark());
        }
        return answer;
    }

    /** By a callback: the blocking form of 5.3.1 to 5.3.3 does not see the reply. */
    private Message request(Message message) throws Exception {
        CompletableFuture<Message> reply = new CompletableFuture<>();
        requests.request(message, new RequestCallback() {
            @Override
            public void onSuccess(Message answer) {
                if (answer != null) {  // else only the request was stored
                    reply.complete(answer);
                }
            }

            @Override
            public void onException(Throwable error) {
                reply.completeExceptionally(error);
            }
        }, 10_000);
        return reply.get(15, TimeUnit.SECONDS);
    }

    private interface Step {
        Object take(int number) throws Exception;
    }

    private static String run(int count, int threads, Step step) throws Exception {
        com.sun.management.OperatingSystemMXBean system =
            (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long[] spans = new long[count];
        AtomicInteger next = new AtomicInteger();
        AtomicReference<Throwable> failure = new AtomicReference<>();
        CountDownLatch done = new CountDownLatch(threads);
        long cpu = system.getProcessCpuTime();
        long began = System.nanoTime();
        for (int i = 0; i < threads; i++) {
            new Thread(() -> {
                try {
                    for (int number = next.getAndIncrement(); number < count; number = next.getAndIncrement()) {
                        long start = System.nanoTime();
                        step.take(number);
                        spans[number] = System.nanoTime() - start;
                    }
                } catch (Throwable error) {
                    failure.compareAndSet(null, error);
                } finally {
                    done.countDown();
                }
            }).start();
        }
        done.await();
        double seconds = (System.nanoTime() - began) / 1e9;
        double used = (system.getProcessCpuTime() - cpu) / 1e9;
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get());
        }
        Arrays.sort(spans);
        double p50 = spans[count / 2] / 1e9;
        double p99 = spans[Math.min(count - 1, count * 99 / 100)] / 1e9;
        return String.format(Locale.ROOT, "ok %d %.9f %.9f %.9f %.9f", count, seconds, used, p50, p99);
    }
}
