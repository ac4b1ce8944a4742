import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * Evaluates filters with Apache's own classes. Standard input has expressions, each with the
 * properties of messages; for each expression one line comes back: "E" when it can't be read, or a
 * letter for each message: T, F, N (null) or X (an exception).
 */
public class EvaluateFilters {
    public static void main(String[] args) throws Exception {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        for (int left = in.readInt(); left > 0; left--) {
            String text = text(in);
            Expression expression = null;
            try {
                expression = FilterFactory.INSTANCE.get("SQL92").compile(text);
            } catch (Exception refused) {
                // Answered below.
            }
            StringBuilder line = new StringBuilder();
            for (int messages = in.readInt(); messages > 0; messages--) {
                Map<String, Object> properties = new HashMap<>();
                for (int count = in.readInt(); count > 0; count--) {
                    properties.put(text(in), text(in));
                }
                if (expression != null) {
                    line.append(letter(expression, properties));
                }
            }
            out.println(expression == null ? "E" : line.toString());
        }
        out.flush();
    }

    private static char letter(Expression expression, Map<String, Object> properties) {
        try {
            Object value = expression.evaluate(new Message(properties));
            return value == null ? 'N' : Boolean.TRUE.equals(value) ? 'T' : 'F';
        } catch (Exception failed) {
            return 'X';
        }
    }

    private static String text(DataInputStream in) throws Exception {
        byte[] bytes = new byte[in.readInt()];
        in.readFully(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static class Message implements EvaluationContext {
        private final Map<String, Object> properties;

        Message(Map<String, Object> properties) {
            this.properties = properties;
        }

        @Override
        public Object get(String name) {
            return properties.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return properties;
        }
    }
}
