package rocketwire;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** What an operator can ask: messages by id and key, and every subcommand of mqadmin. */
final class Admin {
    private final Map<String, DefaultMQAdminExt> running = new ConcurrentHashMap<>();

    void register(Map<String, Driver.Command> commands) {
        commands.put("admin.view", given -> Messages.write(
            admin(given).viewMessage(given.text("topic"), given.text("id"))));
        commands.put("admin.query", this::query);
        commands.put("admin.mqadmin", this::mqadmin);
        commands.put("decode", given -> Messages.writeAll(
            MessageDecoder.decodes(ByteBuffer.wrap(given.bytes("body")))));
        commands.put("select", Keys::select);
    }

    private DefaultMQAdminExt admin(Arguments given) throws Exception {
        String key = given.text("name_server") + "/" + given.text("access_key", "") + given.inner("options").map();
        synchronized (running) {
            DefaultMQAdminExt admin = running.get(key);
            if (admin == null) {
                admin = new DefaultMQAdminExt(given.signer());
                admin.setInstanceName("admin-" + running.size() + "-" + System.nanoTime());
                given.configure(admin);
                admin.start();
                running.put(key, admin);
            }
            return admin;
        }
    }

    private Object query(Arguments given) throws Exception {
        QueryResult result = admin(given).queryMessage(given.text("topic"), given.text("key"),
            (int) given.number("max", 32), given.number("begin_ms", 0), given.number("end_ms", Long.MAX_VALUE));
        return Messages.writeAll(result.getMessageList());
    }

    /** Runs one subcommand and gives back what it printed; one at a time, for it prints to the process. */
    private synchronized Object mqadmin(Arguments given) throws Exception {
        List<Object> words = given.list("words");
        String[] command = new String[words.size()];
        for (int index = 0; index < command.length; index++) {
            command[index] = words.get(index).toString();
        }
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream before = System.out;
        PrintStream errors = System.err;
        PrintStream into = new PrintStream(printed, true, "UTF-8");
        System.setOut(into);
        System.setErr(into);
        try {
            forgetCommands();
            MQAdminStartup.main0(command, given.signer());
        } finally {
            System.setOut(before);
            System.setErr(errors);
        }
        return printed.toString("UTF-8");
    }

    /** Some commands keep a client that they have shut down; a process of their own would not notice. */
    private static void forgetCommands() throws Exception {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                ((List<?>) field.get(null)).clear();
            }
        }
    }
}
