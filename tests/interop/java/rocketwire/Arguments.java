package rocketwire;

import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.List;
import java.util.Map;

import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.remoting.RPCHook;

/** The arguments of one command, read by name and type. */
final class Arguments {
    private final Map<String, Object> values;

    Arguments(Map<String, Object> values) {
        this.values = values;
    }

    boolean has(String name) {
        return values.get(name) != null;
    }

    String text(String name) {
        Object value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("the argument " + name + " is missing");
        }
        return value.toString();
    }

    String text(String name, String otherwise) {
        return has(name) ? text(name) : otherwise;
    }

    long number(String name) {
        return Long.parseLong(text(name));
    }

    long number(String name, long otherwise) {
        return has(name) ? number(name) : otherwise;
    }

    boolean flag(String name) {
        return has(name) && Boolean.parseBoolean(text(name));
    }

    byte[] bytes(String name) {
        return Base64.getDecoder().decode(text(name));
    }

    List<Object> list(String name) {
        Object value = values.get(name);
        return value == null ? Collections.emptyList() : new ArrayList<>((List<?>) value);
    }

    List<Arguments> each(String name) {
        List<Arguments> found = new ArrayList<>();
        for (Object item : list(name)) {
            found.add(of(item));
        }
        return found;
    }

    Arguments inner(String name) {
        return of(has(name) ? values.get(name) : Collections.emptyMap());
    }

    @SuppressWarnings("unchecked")
    private static Arguments of(Object map) {
        return new Arguments((Map<String, Object>) map);
    }

    Map<String, Object> map() {
        return values;
    }

    /** The hook that signs requests, or null where no account is given. */
    RPCHook signer() {
        if (!has("access_key")) {
            return null;
        }
        return new AclClientRPCHook(new SessionCredentials(text("access_key"), text("secret_key")));
    }

    /**
     * The same for a consumer, which else notices a new route or a lost heartbeat race only after half
     * a minute; nothing but the waiting changes.
     */
    void configureConsumer(ClientConfig consumer) throws Exception {
        consumer.setPollNameServerInterval(1_000);
        consumer.setHeartbeatBrokerInterval(2_000);
        configure(consumer);
    }

    /** Sets bean properties of a client by their Java names. */
    void configure(Object client) throws Exception {
        client.getClass().getMethod("setNamesrvAddr", String.class).invoke(client, text("name_server"));
        client.getClass().getMethod("setClientIP", String.class).invoke(client, "127.0.0.1");
        for (Map.Entry<String, Object> option : inner("options").map().entrySet()) {
            setProperty(client, option.getKey(), option.getValue());
        }
    }

    private static void setProperty(Object client, String name, Object value) throws Exception {
        String setter = "set" + Character.toUpperCase(name.charAt(0)) + name.substring(1);
        for (Method method : client.getClass().getMethods()) {
            if (method.getName().equals(setter) && method.getParameterCount() == 1) {
                Object converted = convert(method.getParameterTypes()[0], value.toString());
                if (converted != null) {
                    method.invoke(client, converted);
                    return;
                }
            }
        }
        throw new IllegalArgumentException(client.getClass().getSimpleName() + " has no property " + name);
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Object convert(Class<?> type, String value) {
        if (type == String.class) {
            return value;
        } else if (type == int.class) {
            return Integer.valueOf(value);
        } else if (type == long.class) {
            return Long.valueOf(value);
        } else if (type == boolean.class) {
            return Boolean.valueOf(value);
        } else if (type.isEnum()) {
            return Enum.valueOf((Class<Enum>) type, value);
        }
        return null;
    }
}
