package rocketwire;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;

import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.compression.CompressorFactory;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * Stores messages that no decent client would send, made by Apache's own encoders and then damaged.
 *
 * <p>Requests go straight to a broker through Apache's remoting client, because its producer would
 * refuse to send them. Behind each of them goes a good one, whose body says its number.
 */
final class Poison {
    private static final int SEND = 310;
    private static final int INNER_BATCH = 0x80;
    private static final int NEED_UNWRAP = 0x40;
    private static final long[] TIMES = {
        0, -1, 1L << 62, -(1L << 62), Long.MAX_VALUE, Long.MIN_VALUE, 1_700_000_000_000L, 253_402_300_800_000L};
    private static final String[] PROPERTIES = {
        "", "\u0001", "\u0002", "\u0001\u0002\u0002\u0001", "TAGS\u0001\u0002KEYS", "a\u0001b\u0001c\u0002",
        "KEYS\u0001k", "UNIQ_KEY\u0001not an id\u0002", "INNER_NUM\u0001x\u0002INNER_BASE\u0001-9\u0002",
        "INNER_BASE\u000199999999999999999999\u0002", "WAIT\u0001maybe\u0002", "\u0002\u0002a\u0001b",
        "\ud83d\ude00\u0001\u4e8c\u0002"};

    void register(Map<String, Driver.Command> commands) {
        commands.put("poison.write", this::write);
    }

    private Object write(Arguments given) throws Exception {
        NettyRemotingClient client = new NettyRemotingClient(new NettyClientConfig());
        client.start();
        List<Object> codes = new ArrayList<>();
        try {
            Random random = new Random(given.number("seed"));
            for (int number = 0; number < given.number("count"); number++) {
                codes.add(store(client, given, poison(given, random)));
                Map<String, String> good = fields(given, 0, 1_700_000_000_000L, "KEYS\u0001k\u0002");
                codes.add(store(client, given, request(good, ("good " + number).getBytes("UTF-8"))));
            }
        } finally {
            client.shutdown();
        }
        return codes;
    }

    private static int store(NettyRemotingClient client, Arguments given, RemotingCommand request)
        throws Exception {
        return client.invokeSync(given.text("address"), request, 5000).getCode();
    }

    private static RemotingCommand poison(Arguments given, Random random) throws IOException {
        int flag = 0;
        byte[] body;
        int kind = random.nextInt(6);
        if (kind < 3) {
            CompressionType type = CompressionType.values()[kind];
            body = CompressorFactory.getCompressor(type).compress(bytes(random, 10 + random.nextInt(400)), 5);
            flag = MessageSysFlag.COMPRESSED_FLAG | type.getCompressionFlag();
        } else if (kind == 3) {
            List<Message> parts = new ArrayList<>();
            for (int left = 1 + random.nextInt(3); left > 0; left--) {
                parts.add(new Message(given.text("topic"), bytes(random, 5)));
            }
            body = MessageDecoder.encodeMessages(parts);
            flag = INNER_BATCH | NEED_UNWRAP;
        } else {
            body = bytes(random, 1 + random.nextInt(60));
            flag = random.nextInt(8) << 8 | (random.nextBoolean() ? MessageSysFlag.COMPRESSED_FLAG : 0);
        }
        if (random.nextBoolean()) {
            body[random.nextInt(body.length)] ^= (byte) (1 + random.nextInt(255));
            body = Arrays.copyOf(body, 1 + random.nextInt(body.length));
        }
        if (random.nextInt(4) == 0) {
            flag ^= random.nextBoolean() ? INNER_BATCH | NEED_UNWRAP : NEED_UNWRAP;
        }
        long born = random.nextBoolean() ? TIMES[random.nextInt(TIMES.length)] : random.nextLong();
        return request(fields(given, flag, born, properties(random)), body);
    }

    private static String properties(Random random) {
        if (random.nextInt(3) > 0) {
            return PROPERTIES[random.nextInt(PROPERTIES.length)];
        }
        Map<String, String> own = new HashMap<>();
        own.put("TAGS", "T" + random.nextInt(9));
        own.put("own", "v");
        StringBuilder text = new StringBuilder(MessageDecoder.messageProperties2String(own));
        text.setCharAt(random.nextInt(text.length()), (char) random.nextInt(4));
        return text.toString();
    }

    private static Map<String, String> fields(Arguments given, int flag, long born, String properties) {
        Map<String, String> fields = new HashMap<>();
        fields.put("a", "poison");
        fields.put("b", given.text("topic"));
        fields.put("c", "TBW102");
        fields.put("d", "4");
        fields.put("e", given.text("queue"));
        fields.put("f", String.valueOf(flag));
        fields.put("g", String.valueOf(born));
        fields.put("h", "0");
        fields.put("i", properties);
        fields.put("j", "0");
        fields.put("k", "false");
        fields.put("m", "false");
        return fields;
    }

    private static RemotingCommand request(Map<String, String> fields, byte[] body) {
        RemotingCommand request = RemotingCommand.createRequestCommand(SEND, null);
        fields.forEach(request::addExtField);
        request.setBody(body);
        return request;
    }

    private static byte[] bytes(Random random, int count) {
        byte[] made = new byte[count];
        random.nextBytes(made);
        return made;
    }
}
