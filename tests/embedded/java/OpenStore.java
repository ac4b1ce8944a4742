import java.io.File;
import java.io.FileInputStream;
import java.lang.reflect.Constructor;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Opens a store folder with Apache's own classes and prints what it finds there, one message a
 * line. Arguments: the folder, then keys to look up as topic=key.
 */
public class OpenStore {
    public static void main(String[] args) {
        int code = 1;
        try {
            run(args);
            code = 0;
        } catch (Throwable error) {
            error.printStackTrace();
        }
        System.out.flush();
        // Apache's threads would keep the process alive.
        Runtime.getRuntime().halt(code);
    }

    private static void run(String[] args) throws Exception {
        File folder = new File(args[0]);
        MessageStoreConfig config = new MessageStoreConfig();
        Properties sizes = new Properties();
        try (FileInputStream in = new FileInputStream(new File(folder, "config/store.properties"))) {
            sizes.load(in);
        }
        config.setStorePathRootDir(folder.getPath());
        config.setStorePathCommitLog(new File(folder, "commitlog").getPath());
        config.setMappedFileSizeCommitLog(number(sizes, "mappedFileSizeCommitLog"));
        config.setMappedFileSizeConsumeQueue(number(sizes, "mappedFileSizeConsumeQueue"));
        config.setMaxHashSlotNum(number(sizes, "maxHashSlotNum"));
        config.setMaxIndexNum(number(sizes, "maxIndexNum"));
        config.setDuplicationEnable(false);
        DefaultMessageStore store = make(config);
        System.out.println("loaded " + store.load());
        // Only start() would allow reading, and it opens ports.
        java.lang.reflect.Field closed = DefaultMessageStore.class.getDeclaredField("shutdown");
        closed.setAccessible(true);
        closed.setBoolean(store, false);
        System.out.println("end " + store.getMaxPhyOffset());
        File queues = new File(folder, "consumequeue");
        for (File topic : sorted(queues)) {
            for (File queue : sorted(topic)) {
                print(store, topic.getName(), Integer.parseInt(queue.getName()));
            }
        }
        for (int i = 1; i < args.length; i++) {
            String[] pair = args[i].split("=", 2);
            QueryMessageResult found = store.queryMessage(pair[0], pair[1], 32, 0, Long.MAX_VALUE);
            System.out.println("key " + args[i] + " " + found.getMessageBufferList().size());
        }
    }

    private static void print(DefaultMessageStore store, String topic, int queue) throws Exception {
        long offset = store.getMinOffsetInQueue(topic, queue);
        System.out.println("queue " + topic + " " + queue + " " + offset + " "
            + store.getMaxOffsetInQueue(topic, queue));
        while (offset < store.getMaxOffsetInQueue(topic, queue)) {
            GetMessageResult result = store.getMessage("g", topic, queue, offset, 32, null);
            for (ByteBuffer buffer : result.getMessageBufferList()) {
                MessageExt message = MessageDecoder.decode(buffer);
                System.out.println("message " + topic + " " + queue + " " + message.getQueueOffset()
                    + " " + message.getCommitLogOffset() + " " + new String(message.getBody())
                    + " " + message.getTags());
            }
            if (result.getNextBeginOffset() <= offset) {
                break;
            }
            offset = result.getNextBeginOffset();
        }
    }

    private static DefaultMessageStore make(MessageStoreConfig config) throws Exception {
        BrokerStatsManager stats = new BrokerStatsManager("c", true);
        for (Constructor<?> each : DefaultMessageStore.class.getConstructors()) {
            if (each.getParameterCount() == 5) {
                return (DefaultMessageStore) each.newInstance(
                    config, stats, null, new BrokerConfig(), new ConcurrentHashMap<>());
            }
        }
        return (DefaultMessageStore) DefaultMessageStore.class.getConstructors()[0]
            .newInstance(config, stats, null, new BrokerConfig());
    }

    private static File[] sorted(File folder) {
        File[] files = folder.listFiles();
        if (files == null) {
            return new File[0];
        }
        Arrays.sort(files);
        return files;
    }

    private static int number(Properties properties, String name) {
        return Integer.parseInt(properties.getProperty(name));
    }
}
