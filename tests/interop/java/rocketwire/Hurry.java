package rocketwire;

import java.lang.reflect.Field;

import org.apache.rocketmq.common.ServiceThread;

/**
 * Wakes threads of clients that were told to end and have not noticed.
 *
 * <p>A client waits at its end for a thread that looks only every three seconds whether it is over, and
 * every subcommand of mqadmin is a client. A process that runs hundreds of them would do nothing else.
 */
final class Hurry {
    private static final String SLOW = "NettyEventExecutor";
    private static final long ROUND_MILLIS = 20;
    private final Field target;

    private Hurry() throws NoSuchFieldException {
        target = Thread.class.getDeclaredField("target");
        target.setAccessible(true);
    }

    static void start() throws NoSuchFieldException {
        Hurry hurry = new Hurry();
        Thread thread = new Thread(hurry::work, "hurry");
        thread.setDaemon(true);
        thread.start();
    }

    private void work() {
        try {
            while (true) {
                Thread.sleep(ROUND_MILLIS);
                wakeStopped();
            }
        } catch (InterruptedException | IllegalAccessException over) {
            Thread.currentThread().interrupt();
        }
    }

    private void wakeStopped() throws IllegalAccessException {
        Thread[] threads = new Thread[Thread.activeCount() * 2 + 16];
        int count = Thread.enumerate(threads);
        for (int index = 0; index < count; index++) {
            if (threads[index].getName().startsWith(SLOW)) {
                Object work = target.get(threads[index]);
                if (work instanceof ServiceThread && ((ServiceThread) work).isStopped()) {
                    threads[index].interrupt();
                }
            }
        }
    }
}
