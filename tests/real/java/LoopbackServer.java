import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

import io.netty.bootstrap.ServerBootstrap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.BrokerStartup;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.namesrv.NamesrvStartup;
import org.apache.rocketmq.remoting.RemotingServer;

/**
 * Starts an unchanged name server or broker whose sockets stay on one loopback address.
 *
 * <p>4.x has no setting for the listening address at all, and no release has one for the port of
 * the replication service: both listen on every interface. So the addresses are set after the
 * server has been made and before it starts to listen. Reflection, because the fields are private
 * and differ from release to release; nothing else of the server is touched.
 *
 * <p>The process ends with whoever holds the other end of its standard input, so that a test run
 * which dies leaves no servers behind, and after {@code rocketwire.lifetime.seconds} in any case.
 *
 * <p>Usage: {@code LoopbackServer namesrv|broker <loopback address> <arguments of the server>...}
 */
public final class LoopbackServer {
    private LoopbackServer() {
    }

    public static void main(String[] arguments) throws Exception {
        endWithParent();
        String address = arguments[1];
        String[] rest = new String[arguments.length - 2];
        System.arraycopy(arguments, 2, rest, 0, rest.length);
        if (arguments[0].equals("namesrv")) {
            startNameServer(address, rest);
        } else if (arguments[0].equals("broker")) {
            startBroker(address, rest);
        } else {
            throw new IllegalArgumentException("namesrv or broker, not " + arguments[0]);
        }
        System.out.println("started");
    }

    private static void startNameServer(String address, String[] arguments) throws Exception {
        NamesrvController controller = createNameServer(arguments);
        if (!controller.initialize()) {
            throw new IllegalStateException("the name server refused its configuration");
        }
        bindServers(controller, address);
        controller.start();
        startController();
    }

    /** Since 5.0 a name server has a controller of replicas inside, if its configuration says so. */
    private static void startController() throws Exception {
        try {
            NamesrvStartup.class.getMethod("controllerManagerMain").invoke(null);
        } catch (NoSuchMethodException old) {
            return;
        }
    }

    /** 4.x and 5.x make the controller by methods of different shape. */
    private static NamesrvController createNameServer(String[] arguments) throws Exception {
        try {
            Method parse = NamesrvStartup.class.getMethod("parseCommandlineAndConfigFile", String[].class);
            parse.invoke(null, (Object) arguments);
            return (NamesrvController) NamesrvStartup.class.getMethod("createNamesrvController").invoke(null);
        } catch (NoSuchMethodException old) {
            Method create = NamesrvStartup.class.getMethod("createNamesrvController", String[].class);
            return (NamesrvController) create.invoke(null, (Object) arguments);
        }
    }

    private static void startBroker(String address, String[] arguments) throws Exception {
        BrokerController controller = BrokerStartup.createBrokerController(arguments);
        bindServers(controller, address);
        bindReplication(controller.getMessageStore(), address);
        BrokerStartup.start(controller);
        daemon("register-again", () -> registerAgain(controller));
    }

    /**
     * 5.x finds out in the background which name servers answer; a broker that starts before it knows
     * registers with none of them, and tries again only after ten seconds.
     */
    private static void registerAgain(BrokerController controller) {
        try {
            for (int delay : new int[] {200, 400, 800, 1600}) {
                Thread.sleep(delay);
                controller.registerBrokerAll(true, false, true);
            }
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    private static void bindServers(Object controller, String address) throws Exception {
        for (RemotingServer server : serversOf(controller)) {
            Field bootstrap = field(server.getClass(), "serverBootstrap");
            if (bootstrap != null) {
                bootstrap.set(server, new LoopbackBootstrap(address));
            }
        }
    }

    private static List<RemotingServer> serversOf(Object controller) throws Exception {
        List<RemotingServer> servers = new ArrayList<>();
        for (Field field : controller.getClass().getDeclaredFields()) {
            field.setAccessible(true);
            Object value = field.get(controller);
            if (value instanceof RemotingServer) {
                servers.add((RemotingServer) value);
            } else if (value instanceof Map) {
                for (Object item : ((Map<?, ?>) value).values()) {
                    if (item instanceof RemotingServer) {
                        servers.add((RemotingServer) item);
                    }
                }
            }
        }
        return servers;
    }

    /** 4.x has made the acceptor by now; 5.x makes it in init(), called when the store starts. */
    private static void bindReplication(Object store, String address) throws Exception {
        Field field = field(store.getClass(), "haService");
        Object service = field == null ? null : field.get(store);
        if (service == null || bindAcceptor(service, address)) {
            return;
        }
        InvocationHandler handler = (proxy, method, values) -> {
            try {
                Object result = method.invoke(service, values);
                if (method.getName().equals("init")) {
                    if (!bindAcceptor(service, address)) {
                        throw new IllegalStateException("the replication acceptor was not found");
                    }
                    // Under a controller it is cast to its own class from now on.
                    field.set(store, service);
                }
                return result;
            } catch (InvocationTargetException error) {
                throw error.getCause();
            }
        };
        Class<?> type = field.getType();
        field.set(store, Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, handler));
    }

    private static boolean bindAcceptor(Object service, String address) throws Exception {
        Field field = field(service.getClass(), "acceptSocketService");
        Object acceptor = field == null ? null : field.get(service);
        if (acceptor == null) {
            return false;
        }
        Field listen = field(acceptor.getClass(), "socketAddressListen");
        listen.set(acceptor, onLoopback((SocketAddress) listen.get(acceptor), address));
        return true;
    }

    static SocketAddress onLoopback(SocketAddress asked, String address) {
        InetSocketAddress inet = (InetSocketAddress) asked;
        boolean everywhere = inet.getAddress() == null || inet.getAddress().isAnyLocalAddress();
        return everywhere ? new InetSocketAddress(address, inet.getPort()) : inet;
    }

    private static Field field(Class<?> type, String name) {
        for (Class<?> owner = type; owner != null; owner = owner.getSuperclass()) {
            try {
                Field field = owner.getDeclaredField(name);
                field.setAccessible(true);
                return field;
            } catch (NoSuchFieldException absent) {
                continue;
            }
        }
        return null;
    }

    private static void endWithParent() {
        long seconds = Long.getLong("rocketwire.lifetime.seconds", 3600L);
        daemon("end-with-parent", () -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (IOException closed) {
                // The same as the end of the stream.
            }
            Runtime.getRuntime().halt(3);
        });
        daemon("end-of-life", () -> {
            try {
                Thread.sleep(seconds * 1000L);
            } catch (InterruptedException stopped) {
                return;
            }
            Runtime.getRuntime().halt(4);
        });
    }

    private static void daemon(String name, Runnable work) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        thread.start();
    }

    /** Listens on the loopback address where it was told to listen everywhere. */
    private static final class LoopbackBootstrap extends ServerBootstrap {
        private final String address;

        LoopbackBootstrap(String address) {
            this.address = address;
        }

        @Override
        public ServerBootstrap localAddress(SocketAddress asked) {
            return super.localAddress(onLoopback(asked, address));
        }
    }
}
