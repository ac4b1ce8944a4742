import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.List;

import io.netty.bootstrap.ServerBootstrap;
import org.apache.rocketmq.proxy.CommandLineArgument;
import org.apache.rocketmq.proxy.ProxyStartup;
import org.apache.rocketmq.proxy.config.ConfigurationManager;
import org.apache.rocketmq.proxy.grpc.GrpcServerBuilder;
import org.apache.rocketmq.proxy.grpc.v2.GrpcMessagingApplication;
import org.apache.rocketmq.proxy.processor.MessagingProcessor;
import org.apache.rocketmq.proxy.remoting.RemotingProtocolServer;
import org.apache.rocketmq.common.utils.StartAndShutdown;

/**
 * Starts an unchanged proxy of RocketMQ 5 whose sockets stay on one loopback address.
 *
 * <p>The proxy has no setting for the address it listens on, so its two servers are made as its own
 * start program makes them, and told the address before they start. The process ends with whoever
 * holds the other end of its standard input, and after an hour in any case.
 *
 * <p>Usage: {@code LoopbackProxy <loopback address> <arguments of the proxy>...}
 */
public final class LoopbackProxy {
    private LoopbackProxy() {
    }

    public static void main(String[] arguments) throws Exception {
        endWithParent();
        String address = arguments[0];
        String[] rest = new String[arguments.length - 1];
        System.arraycopy(arguments, 1, rest, 0, rest.length);
        start(address, rest);
        System.out.println("started");
    }

    private static void start(String address, String[] arguments) throws Exception {
        Object parsed = call("parseCommandLineArgument", new Class<?>[] {String[].class}, (Object) arguments);
        call("initConfiguration", new Class<?>[] {CommandLineArgument.class}, parsed);
        MessagingProcessor processor =
            (MessagingProcessor) call("createMessagingProcessor", new Class<?>[0]);
        GrpcMessagingApplication application = (GrpcMessagingApplication)
            call("createServiceProcessor", new Class<?>[] {MessagingProcessor.class}, processor);
        int port = ConfigurationManager.getProxyConfig().getGrpcServerPort();
        Object[] certificates = certificates();
        GrpcServerBuilder builder = (GrpcServerBuilder)
            newBuilder().invoke(null, with(certificates, ProxyStartup.createServerExecutor(), port));
        bindGrpc(builder, new InetSocketAddress(address, port));
        StartAndShutdown remoting = (StartAndShutdown)
            RemotingProtocolServer.class.getConstructors()[0].newInstance(with(certificates, processor));
        bindRemoting(remoting, address);
        StartAndShutdown all = (StartAndShutdown) field(ProxyStartup.class, "PROXY_START_AND_SHUTDOWN").get(null);
        Method append = all.getClass().getSuperclass().getDeclaredMethod(
            "appendStartAndShutdown", StartAndShutdown.class);
        append.setAccessible(true);
        for (Object each : certificates) {
            append.invoke(all, each);
        }
        append.invoke(all, builder.addService(application).configInterceptor().build());
        append.invoke(all, remoting);
        all.start();
    }

    /** Since 5.4 both servers are given somebody who watches the files of their certificates. */
    private static Object[] certificates() throws Exception {
        try {
            Class<?> type = Class.forName("org.apache.rocketmq.proxy.service.cert.TlsCertificateManager");
            return new Object[] {type.getConstructor().newInstance()};
        } catch (ClassNotFoundException old) {
            return new Object[0];
        }
    }

    private static Method newBuilder() throws NoSuchMethodException {
        for (Method method : GrpcServerBuilder.class.getMethods()) {
            if (method.getName().equals("newBuilder")) {
                return method;
            }
        }
        throw new NoSuchMethodException("GrpcServerBuilder.newBuilder");
    }

    private static Object[] with(Object[] last, Object... first) {
        Object[] all = new Object[first.length + last.length];
        System.arraycopy(first, 0, all, 0, first.length);
        System.arraycopy(last, 0, all, first.length, last.length);
        return all;
    }

    private static Object call(String name, Class<?>[] types, Object... values) throws Exception {
        Method method = ProxyStartup.class.getDeclaredMethod(name, types);
        method.setAccessible(true);
        return method.invoke(null, values);
    }

    @SuppressWarnings("unchecked")
    private static void bindGrpc(GrpcServerBuilder builder, SocketAddress address) throws Exception {
        Object netty = field(GrpcServerBuilder.class, "serverBuilder").get(builder);
        List<SocketAddress> listened =
            (List<SocketAddress>) field(netty.getClass(), "listenAddresses").get(netty);
        listened.clear();
        listened.add(address);
    }

    private static void bindRemoting(Object server, String address) throws Exception {
        Object remoting = field(server.getClass(), "defaultRemotingServer").get(server);
        field(remoting.getClass(), "serverBootstrap").set(remoting, new ServerBootstrap() {
            @Override
            public ServerBootstrap localAddress(SocketAddress asked) {
                return super.localAddress(new InetSocketAddress(address, ((InetSocketAddress) asked).getPort()));
            }
        });
    }

    private static Field field(Class<?> type, String name) throws NoSuchFieldException {
        for (Class<?> owner = type; owner != null; owner = owner.getSuperclass()) {
            for (Field field : owner.getDeclaredFields()) {
                if (field.getName().equals(name)) {
                    field.setAccessible(true);
                    return field;
                }
            }
        }
        throw new NoSuchFieldException(type + " has no field " + name);
    }

    private static void endWithParent() {
        daemon(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (IOException closed) {
                // The same as the end of the stream.
            }
            Runtime.getRuntime().halt(3);
        });
        daemon(() -> {
            try {
                Thread.sleep(3_600_000L);
            } catch (InterruptedException stopped) {
                return;
            }
            Runtime.getRuntime().halt(4);
        });
    }

    private static void daemon(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        thread.start();
    }
}
