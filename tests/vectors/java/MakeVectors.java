import com.alibaba.fastjson.serializer.SerializerFeature;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.*;
import org.apache.rocketmq.acl.common.AclUtils;
import org.apache.rocketmq.client.AccessChannel;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.trace.*;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.compression.*;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.body.ClusterInfo;
import org.apache.rocketmq.remoting.protocol.admin.*;
import org.apache.rocketmq.remoting.protocol.heartbeat.*;
import org.apache.rocketmq.remoting.protocol.body.LockBatchRequestBody;
import org.apache.rocketmq.remoting.protocol.route.*;

/**
 * Writes vectors for our codecs, made by the JDK and by Apache RocketMQ's own classes (5.3.3): lines of name TAB value.
 *
 * <p>Only needed to make java.tsv again: compile and run it with the client's jars on the class path, and give the
 * file's path as the argument.
 */
public final class MakeVectors {
    private static final StringBuilder LINES = new StringBuilder();

    private static void put(String name, String value) {
        LINES.append(name).append('\t').append(value).append('\n');
    }

    private static void put(String name, byte[] value) {
        put(name, HexFormat.of().formatHex(value));
    }

    public static void main(String[] args) throws Exception {
        hashes();
        records();
        batches();
        properties();
        compression();
        ids();
        json();
        traces();
        acl();
        Files.writeString(Path.of(args[0]), LINES);
    }

    private static void hash(String name, Object value) {
        put("hash." + name, Integer.toString(value.hashCode()));
    }

    private static void hashes() {
        for (String s : new String[] {"", "a", "TagA", "order-1001", "polygenelubricants", "中文", "😀", "naïve", "\ud800",
            "x".repeat(63), "x".repeat(64), "x".repeat(65), "ab😀".repeat(50), "0123456789".repeat(100)}) {
            StringBuilder units = new StringBuilder();
            for (char unit : s.toCharArray()) units.append(String.format("%04x", (int) unit));
            put("string." + units, Integer.toString(s.hashCode()));
        }
        for (int v : new int[] {0, 1, -1, 42, Integer.MAX_VALUE, Integer.MIN_VALUE}) hash("int." + v, v);
        for (long v : new long[] {0, 1, -1, -2, 42, 4294967296L, -4294967297L, Long.MAX_VALUE, Long.MIN_VALUE, 2147483648L, -2147483649L}) hash("long." + v, v);
        for (double v : new double[] {0.0, -0.0, 1.0, -1.5, 3.141592653589793, 1e300, 5e-324, Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY, Double.NaN}) hash("double." + v, v);
        for (float v : new float[] {0.0f, -0.0f, 1.0f, -1.5f, 3.1415927f, 1e38f, Float.POSITIVE_INFINITY, Float.NaN}) hash("float." + v, v);
        hash("boolean.true", true);
        hash("boolean.false", false);
        hash("short.-7", (short) -7);
        hash("char.x", 'x');
        hash("char.中", '中');
        for (String u : new String[] {"00000000-0000-0000-0000-000000000000", "123e4567-e89b-12d3-a456-426614174000", "ffffffff-ffff-ffff-ffff-fffffffffffe"}) hash("uuid." + u, UUID.fromString(u));
        for (long v : new long[] {0, 1700000000123L, -1L}) hash("date." + v, new Date(v));
        hash("list.empty", Collections.emptyList());
        hash("list.1,2,3", Arrays.asList(1, 2, 3));
        hash("list.a,null,b", Arrays.asList("a", null, "b"));
        hash("list.-1,[x]", Arrays.asList(-1, Collections.singletonList("x")));
        hash("set.a,b,-1", new HashSet<>(Arrays.asList("a", "b", -1)));
        hash("set.empty", new HashSet<>());
        Map<Object, Object> m = new HashMap<>();
        m.put("a", 1);
        m.put("b", null);
        m.put(-3, "z");
        hash("map.a=1,b=null,-3=z", m);
        hash("queue", new MessageQueue("T", "broker-a", 3));
        hash("queue.negative", new MessageQueue("主题", "经纪", 255));
    }

    private static MessageExt message(String topic, byte[] body) throws Exception {
        MessageExt m = new MessageExt();
        m.setTopic(topic);
        m.setBody(body);
        m.setQueueId(3);
        m.setFlag(-7);
        m.setQueueOffset(1234567890123L);
        m.setCommitLogOffset(987654321098L);
        m.setBornTimestamp(1700000000000L);
        m.setStoreTimestamp(1700000000100L);
        m.setBornHost(new InetSocketAddress(InetAddress.getByName("10.1.2.3"), 50123));
        m.setStoreHost(new InetSocketAddress(InetAddress.getByName("192.168.7.250"), 10911));
        m.setReconsumeTimes(2);
        m.setPreparedTransactionOffset(77);
        m.setBodyCRC(UtilAll.crc32(body));
        m.setTags("TagA");
        m.setKeys("k1 k2");
        m.putUserProperty("colour", "blå");
        MessageAccessor.putProperty(m, "__SHARDINGKEY", "s-1");
        MessageAccessor.putProperty(m, "UNIQ_KEY", "7F00000100010000000200000000000A");
        return m;
    }

    private static void records() throws Exception {
        byte[] body = "héllo wörld".getBytes(StandardCharsets.UTF_8);
        put("record.v1", MessageDecoder.encode(message("TopicTest", body), false));
        MessageExt v6 = message("TopicTest", body);
        v6.setBornHost(new InetSocketAddress(InetAddress.getByName("2001:db8::1"), 50123));
        v6.setBornHostV6Flag();
        put("record.born6", MessageDecoder.encode(v6, false));
        v6.setStoreHost(new InetSocketAddress(InetAddress.getByName("fe80::a:b"), 10911));
        v6.setStoreHostAddressV6Flag();
        put("record.both6", MessageDecoder.encode(v6, false));
        MessageExt store6 = message("TopicTest", body);
        store6.setStoreHost(new InetSocketAddress(InetAddress.getByName("fe80::a:b"), 10911));
        store6.setStoreHostAddressV6Flag();
        put("record.store6", MessageDecoder.encode(store6, false));
        for (CompressionType type : new CompressionType[] {CompressionType.ZLIB, CompressionType.LZ4, CompressionType.ZSTD}) {
            MessageExt packed = message("TopicTest", "compress me ".repeat(400).getBytes(StandardCharsets.UTF_8));
            packed.setSysFlag(MessageSysFlag.COMPRESSED_FLAG | type.getCompressionFlag());
            put("record." + type.name().toLowerCase(), MessageDecoder.encode(packed, true));
        }
    }

    private static void batches() throws Exception {
        List<Message> list = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            Message m = new Message("T", "Tag" + i, ("body-" + i).getBytes(StandardCharsets.UTF_8));
            m.setFlag(i * 1000 - 1);
            list.add(m);
        }
        put("batch", MessageDecoder.encodeMessages(list));
    }

    private static void properties() {
        Map<String, String> map = new LinkedHashMap<>();
        map.put("TAGS", "TagA");
        map.put("colour", "中");
        put("properties", MessageDecoder.messageProperties2String(map).getBytes(StandardCharsets.UTF_8));
        for (String text : new String[] {"a\u00011\u0002b\u00012", "\u0002a\u00011\u0002", "a\u0001\u0002b\u00012\u0002", "\u00011\u0002b\u00012\u0002", "x\u0002b\u00012", "a\u00011\u00012\u0002", "a\u00011\u0002a\u00012\u0002", "\u0001\u0001\u0001\u0002b\u00012"}) {
            Map<String, String> read = new TreeMap<>(MessageDecoder.string2messageProperties(text));
            put("properties.read." + HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_8)),
                com.alibaba.fastjson.JSON.toJSONString(read));
        }
    }

    private static void compression() throws Exception {
        byte[] body = "RocketMQ compresses what is worth it. ".repeat(200).getBytes(StandardCharsets.UTF_8);
        for (CompressionType type : CompressionType.values()) {
            put("compressed." + type.name().toLowerCase(), CompressorFactory.getCompressor(type).compress(body, 5));
        }
    }

    private static void ids() throws Exception {
        put("offset_id.v4", MessageDecoder.createMessageId(new InetSocketAddress(InetAddress.getByName("192.168.7.250"), 10911), 987654321098L));
        put("offset_id.v6", MessageDecoder.createMessageId(new InetSocketAddress(InetAddress.getByName("fe80::a:b"), 10911), 987654321098L));
    }

    private static TopicRouteData route() {
        TopicRouteData route = new TopicRouteData();
        List<QueueData> queues = new ArrayList<>();
        List<BrokerData> brokers = new ArrayList<>();
        for (String name : new String[] {"broker-b", "broker-a", "经纪-c"}) {
            QueueData queue = new QueueData();
            queue.setBrokerName(name);
            queue.setPerm(name.equals("经纪-c") ? 4 : 6);
            queue.setReadQueueNums(4);
            queue.setWriteQueueNums(name.equals("broker-a") ? 2 : 3);
            queues.add(queue);
            HashMap<Long, String> addresses = new HashMap<>();
            addresses.put(0L, "10.0.0.1:10911");
            addresses.put(1L, "10.0.0.2:10911");
            addresses.put(10L, "10.0.0.3:10911");
            brokers.add(new BrokerData("DefaultCluster", name, addresses));
        }
        route.setQueueDatas(queues);
        route.setBrokerDatas(brokers);
        route.setFilterServerTable(new HashMap<>());
        return route;
    }

    private static void json() {
        put("route.bare", route().toJson().getBytes(StandardCharsets.UTF_8));
        put("route.standard", route().encode(SerializerFeature.BrowserCompatible, SerializerFeature.QuoteFieldNames,
            SerializerFeature.SkipTransientField, SerializerFeature.MapSortField));
        ClusterInfo info = new ClusterInfo();
        Map<String, BrokerData> table = new HashMap<>();
        for (BrokerData data : route().getBrokerDatas()) table.put(data.getBrokerName(), data);
        info.setBrokerAddrTable(table);
        Map<String, Set<String>> clusters = new HashMap<>();
        clusters.put("DefaultCluster", table.keySet());
        info.setClusterAddrTable(clusters);
        put("cluster_info", info.encode());
        TopicStatsTable stats = new TopicStatsTable();
        for (int i = 0; i < 3; i++) {
            TopicOffset offset = new TopicOffset();
            offset.setMinOffset(i);
            offset.setMaxOffset(100 + i);
            offset.setLastUpdateTimestamp(1700000000000L + i);
            stats.getOffsetTable().put(new MessageQueue("T", "broker-a", i), offset);
        }
        put("topic_stats", stats.encode());
        HeartbeatData heartbeat = new HeartbeatData();
        heartbeat.setClientID("10.0.0.1@1#2");
        ProducerData producer = new ProducerData();
        producer.setGroupName("pg");
        heartbeat.getProducerDataSet().add(producer);
        ConsumerData consumer = new ConsumerData();
        consumer.setGroupName("cg");
        consumer.setConsumeType(ConsumeType.CONSUME_PASSIVELY);
        consumer.setMessageModel(MessageModel.CLUSTERING);
        consumer.setConsumeFromWhere(org.apache.rocketmq.common.consumer.ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        SubscriptionData subscription = new SubscriptionData("T", "TagA || TagB");
        subscription.setSubVersion(5);
        subscription.getTagsSet().addAll(Arrays.asList("TagA", "TagB"));
        subscription.getCodeSet().addAll(Arrays.asList("TagA".hashCode(), "TagB".hashCode()));
        consumer.getSubscriptionDataSet().add(subscription);
        heartbeat.getConsumerDataSet().add(consumer);
        put("heartbeat", heartbeat.encode());
        LockBatchRequestBody lock = new LockBatchRequestBody();
        lock.setClientId("c");
        lock.setConsumerGroup("g");
        lock.getMqSet().add(new MessageQueue("T", "broker-a", 1));
        put("lock", lock.encode());
        TopicRouteData fixed = route();
        fixed.setQueueDatas(new ArrayList<>());
        Map<String, org.apache.rocketmq.remoting.protocol.statictopic.TopicQueueMappingInfo> mappings = new HashMap<>();
        for (int i = 0; i < 2; i++) {
            org.apache.rocketmq.remoting.protocol.statictopic.TopicQueueMappingInfo mapping =
                new org.apache.rocketmq.remoting.protocol.statictopic.TopicQueueMappingInfo("T", 5, i == 0 ? "broker-a" : "broker-b", 10 + i);
            java.util.concurrent.ConcurrentMap<Integer, Integer> current = new java.util.concurrent.ConcurrentHashMap<>();
            current.put(i, 0);
            current.put(2, 1);
            mapping.setCurrIdMap(current);
            mappings.put(mapping.getBname(), mapping);
        }
        fixed.setTopicQueueMappingByBroker(mappings);
        put("route.static", fixed.encode());
        java.util.concurrent.ConcurrentMap<MessageQueue, String> owners =
            org.apache.rocketmq.remoting.rpc.ClientMetadata.topicRouteData2EndpointsForStaticTopic("T", fixed);
        for (Map.Entry<MessageQueue, String> entry : new TreeMap<>(owners).entrySet()) {
            put("route.static.owner." + entry.getKey().getQueueId(), entry.getKey().getBrokerName() + " " + entry.getValue());
        }
        StringBuilder listed = new StringBuilder();
        TopicRouteData plain = route();
        for (MessageQueue queue : org.apache.rocketmq.client.impl.factory.MQClientInstance.topicRouteData2TopicPublishInfo("T", plain).getMessageQueueList()) {
            listed.append(queue.getBrokerName()).append(':').append(queue.getQueueId()).append(' ');
        }
        put("route.publish", listed.toString().trim());
    }

    private static void traces() throws Exception {
        TraceBean bean = new TraceBean();
        bean.setTopic("T");
        bean.setMsgId("7F00000100010000000200000000000A");
        bean.setOffsetMsgId("0A00000200002A9F0000000000000400");
        bean.setTags("TagA");
        bean.setKeys("k1 k2");
        bean.setStoreHost("10.0.0.2:10911");
        bean.setBodyLength(5);
        bean.setMsgType(MessageType.Normal_Msg);
        bean.setRetryTimes(1);
        bean.setTransactionId("tx");
        bean.setTransactionState(LocalTransactionState.COMMIT_MESSAGE);
        bean.setFromTransactionCheck(true);
        for (TraceType type : new TraceType[] {TraceType.Pub, TraceType.SubBefore, TraceType.SubAfter, TraceType.EndTransaction}) {
            TraceContext context = new TraceContext();
            context.setTraceType(type);
            context.setTimeStamp(1700000000000L);
            context.setRegionId("DefaultRegion");
            context.setGroupName("g");
            context.setCostTime(12);
            context.setSuccess(true);
            context.setRequestId("7F000001000100000002000000000FFF");
            context.setContextCode(3);
            context.setAccessChannel(AccessChannel.LOCAL);
            context.setTraceBeans(new ArrayList<>(Collections.singletonList(bean)));
            put("trace." + type.name(), TraceDataEncoder.encoderFromContextBean(context).getTransData().getBytes(StandardCharsets.UTF_8));
        }
    }

    private static void acl() {
        SortedMap<String, String> fields = new TreeMap<>();
        fields.put("AccessKey", "rocketmq");
        fields.put("b", "T中");
        fields.put("Zeta", "z");
        fields.put("a", "group");
        org.apache.rocketmq.remoting.protocol.RemotingCommand command =
            org.apache.rocketmq.remoting.protocol.RemotingCommand.createRequestCommand(310, null);
        command.setBody(new byte[] {0, 1, (byte) 0xff});
        put("acl.signature", AclUtils.calSignature(AclUtils.combineRequestContent(command, fields), "12345678"));
    }
}
