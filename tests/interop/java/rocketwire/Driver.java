package rocketwire;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/**
 * Apache RocketMQ's own Java client, obeying commands.
 *
 * <p>Reads one JSON object per line ({"call": 1, "command": "producer.send", ...}) and answers each
 * with one line ({"call": 1, "value": ...} or {"call": 1, "error": {...}}). Commands run side by side,
 * so answers may come in another order. The process ends with its input.
 */
public final class Driver {
    private final Map<String, Command> commands = new ConcurrentHashMap<>();
    private final PrintStream answers;

    /** One thing the driver can be told to do. */
    interface Command {
        Object run(Arguments given) throws Exception;
    }

    private Driver(PrintStream answers) {
        this.answers = answers;
        Producers producers = new Producers();
        producers.register(commands);
        new Consumers(producers).register(commands);
        new Admin().register(commands);
        new Load(producers).register(commands);
        new Poison().register(commands);
        commands.put("ping", given -> "pong");
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
        // Anything the client prints by itself must not get between the answers.
        System.setOut(System.err);
        Hurry.start();
        Driver driver = new Driver(answers);
        ExecutorService threads = Executors.newCachedThreadPool();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        String line;
        while ((line = lines.readLine()) != null) {
            String command = line;
            threads.execute(() -> driver.obey(command));
        }
        Runtime.getRuntime().halt(0);
    }

    @SuppressWarnings("unchecked")
    private void obey(String line) {
        Map<String, Object> given = RemotingSerializable.fromJson(line, Map.class);
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("call", given.get("call"));
        try {
            Command command = commands.get(String.valueOf(given.get("command")));
            if (command == null) {
                throw new IllegalArgumentException("there is no command " + given.get("command"));
            }
            answer.put("value", command.run(new Arguments(given)));
        } catch (Throwable error) {
            answer.put("error", describe(error));
        }
        String text = RemotingSerializable.toJson(answer, false);
        synchronized (answers) {
            answers.println(text);
            answers.flush();
        }
    }

    private static Map<String, Object> describe(Throwable thrown) {
        Throwable error = thrown;
        while ((error instanceof ExecutionException || error instanceof InvocationTargetException)
            && error.getCause() != null) {
            error = error.getCause();
        }
        Map<String, Object> shown = new LinkedHashMap<>();
        shown.put("type", error.getClass().getSimpleName());
        shown.put("message", String.valueOf(error.getMessage()));
        shown.put("code", codeOf(error));
        return shown;
    }

    private static Object codeOf(Throwable error) {
        try {
            return error.getClass().getMethod("getResponseCode").invoke(error);
        } catch (ReflectiveOperationException none) {
            return null;
        }
    }

    static <T> T await(CompletableFuture<T> future, long seconds) throws Exception {
        return future.get(seconds, TimeUnit.SECONDS);
    }
}
