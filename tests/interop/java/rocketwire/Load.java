package rocketwire;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends as fast as it can from some threads until told to stop, and remembers every send.
 *
 * <p>Each send is three numbers: microseconds from the start of the load to its end, microseconds
 * it took, and 1 for a stored message or 0 for a failure. What they mean in the phases of a fault is
 * worked out by the caller, by the same rules for every client.
 */
final class Load {
    private final Producers producers;
    private final Map<String, Run> runs = new ConcurrentHashMap<>();

    Load(Producers producers) {
        this.producers = producers;
    }

    void register(Map<String, Driver.Command> commands) {
        commands.put("load.start", this::start);
        commands.put("load.stop", given -> runs.remove(given.text("load")).stop());
    }

    private Object start(Arguments given) {
        Run run = new Run(producers.get(given), given);
        runs.put(given.text("load"), run);
        run.start();
        return null;
    }

    private static final class Run {
        private final DefaultMQProducer producer;
        private final String topic;
        private final byte[] body;
        private final int inFlight;
        private final int batch;
        private final long begin = System.nanoTime();
        private final List<Worker> workers = new ArrayList<>();
        private volatile boolean over;

        Run(DefaultMQProducer producer, Arguments given) {
            this.producer = producer;
            this.topic = given.text("topic");
            this.body = new byte[(int) given.number("body_size", 200)];
            this.inFlight = (int) given.number("in_flight", 0);
            this.batch = (int) given.number("batch", 1);
            for (int index = 0; index < given.number("threads", 1); index++) {
                workers.add(new Worker());
            }
        }

        void start() {
            for (Worker worker : workers) {
                worker.setDaemon(true);
                worker.start();
            }
        }

        Object stop() throws InterruptedException {
            over = true;
            List<Object> sends = new ArrayList<>();
            Map<String, Integer> errors = new LinkedHashMap<>();
            for (Worker worker : workers) {
                worker.join(TimeUnit.SECONDS.toMillis(60));
                synchronized (worker.sends) {
                    sends.addAll(worker.sends);
                    worker.errors.forEach((name, count) -> errors.merge(name, count, Integer::sum));
                }
            }
            Map<String, Object> shown = new LinkedHashMap<>();
            shown.put("sends", sends);
            shown.put("errors", errors);
            return shown;
        }

        private final class Worker extends Thread {
            final List<Object> sends = new ArrayList<>();
            final Map<String, Integer> errors = new LinkedHashMap<>();
            private final Semaphore places = new Semaphore(Math.max(1, inFlight));

            @Override
            public void run() {
                try {
                    while (!over) {
                        if (inFlight > 0) {
                            sendLater();
                        } else {
                            sendNow();
                        }
                    }
                    // What is still on its way belongs to the run, too.
                    places.tryAcquire(Math.max(1, inFlight), 30, TimeUnit.SECONDS);
                } catch (InterruptedException stopped) {
                    Thread.currentThread().interrupt();
                }
            }

            private void sendNow() throws InterruptedException {
                long at = System.nanoTime();
                try {
                    if (batch > 1) {
                        List<Message> messages = new ArrayList<>();
                        for (int index = 0; index < batch; index++) {
                            messages.add(new Message(topic, body));
                        }
                        producer.send(messages);
                    } else {
                        producer.send(new Message(topic, body));
                    }
                    record(at, null);
                } catch (InterruptedException stopped) {
                    throw stopped;
                } catch (Exception error) {
                    record(at, error);
                }
            }

            private void sendLater() throws InterruptedException {
                places.acquire();
                long at = System.nanoTime();
                try {
                    producer.send(new Message(topic, body), new SendCallback() {
                        @Override
                        public void onSuccess(SendResult result) {
                            record(at, null);
                            places.release();
                        }

                        @Override
                        public void onException(Throwable error) {
                            record(at, error);
                            places.release();
                        }
                    });
                } catch (InterruptedException stopped) {
                    throw stopped;
                } catch (Exception error) {
                    record(at, error);
                    places.release();
                }
            }

            private void record(long at, Throwable error) {
                long now = System.nanoTime();
                synchronized (sends) {
                    sends.add(new long[] {(now - begin) / 1000, (now - at) / 1000, error == null ? 1 : 0});
                    if (error != null) {
                        errors.merge(error.getClass().getSimpleName(), 1, Integer::sum);
                    }
                }
            }
        }
    }
}
