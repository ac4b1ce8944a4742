import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/** Prints how Apache's client shares queues: strategy, members, queues, member, indexes of its queues. */
public class MakeAllocations {
    private static final int[][] SHAPES = {
        {1, 1}, {1, 3}, {3, 8}, {4, 4}, {5, 8}, {7, 3}, {2, 16}, {6, 17}};

    public static void main(String[] args) {
        AllocateMessageQueueStrategy[] strategies = {
            new AllocateMessageQueueAveragely(),
            new AllocateMessageQueueAveragelyByCircle(),
            new AllocateMessageQueueConsistentHash()};
        for (int[] shape : SHAPES) {
            List<String> members = new ArrayList<>();
            for (int i = 0; i < shape[0]; i++) {
                members.add("10.0.0." + (i * 7 % 11) + "@" + (100 + i * 13) + "#" + (999 - i));
            }
            List<MessageQueue> queues = new ArrayList<>();
            for (int i = 0; i < shape[1]; i++) {
                queues.add(new MessageQueue("orders", "broker-" + (char) ('a' + i % 3), i / 3));
            }
            Collections.sort(members);
            Collections.sort(queues);
            for (AllocateMessageQueueStrategy strategy : strategies) {
                for (String member : members) {
                    StringBuilder found = new StringBuilder();
                    for (MessageQueue queue : strategy.allocate("g", member, queues, members)) {
                        found.append(queues.indexOf(queue)).append(' ');
                    }
                    System.out.println(strategy.getName() + "\t" + shape[0] + "\t" + shape[1]
                        + "\t" + member + "\t" + found.toString().trim());
                }
            }
        }
    }
}
