import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.storm.kafka.Broker;
import org.apache.storm.kafka.DynamicPartitionConnections;
import org.apache.storm.kafka.KafkaUtils;
import org.apache.storm.kafka.Partition;
import org.apache.storm.kafka.PartitionManager;
import org.apache.storm.kafka.SpoutConfig;
import org.apache.storm.kafka.StaticHosts;
import org.apache.storm.kafka.ZkState;
import org.apache.storm.kafka.trident.GlobalPartitionInformation;
import org.apache.storm.spout.ISpoutOutputCollector;
import org.apache.storm.spout.SpoutOutputCollector;
import org.json.simple.JSONArray;
import org.json.simple.JSONValue;

/**
 * Runs the Kafka spout of Storm 1.2, which uses SimpleConsumer and ZooKeeper, on one partition.
 * Each line of the input is a JSON array with the name of a call and its arguments, and has one
 * line as its answer. The arguments of the program: the ports of ZooKeeper and of the broker, the
 * topic, the partition, the root and the id of the spout, and the id of the topology.
 */
public class Storm1 {
    private static ZkState state;
    private static PartitionManager manager;
    private static final JSONArray MESSAGES = new JSONArray();

    public static void main(String[] given) throws Exception {
        int number = Integer.parseInt(given[3]);
        Map<String, Object> settings = new HashMap<>();
        settings.put("transactional.zookeeper.servers", Arrays.asList("127.0.0.1"));
        settings.put("transactional.zookeeper.port", Integer.parseInt(given[0]));
        settings.put("storm.zookeeper.session.timeout", 20000);
        settings.put("storm.zookeeper.connection.timeout", 15000);
        settings.put("storm.zookeeper.retry.times", 5);
        settings.put("storm.zookeeper.retry.interval", 1000);
        settings.put("topology.name", "words");
        state = new ZkState(settings);
        Broker broker = new Broker("127.0.0.1", Integer.parseInt(given[1]));
        GlobalPartitionInformation partitions = new GlobalPartitionInformation(given[2]);
        partitions.addPartition(number, broker);
        SpoutConfig config =
                new SpoutConfig(new StaticHosts(partitions), given[2], given[4], given[5]);
        config.startOffsetTime = kafka.api.OffsetRequest.EarliestTime();
        DynamicPartitionConnections connections = new DynamicPartitionConnections(
                config, KafkaUtils.makeBrokerReader(settings, config));
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            List<?> call = (List<?>) JSONValue.parseWithException(line);
            if (call.get(0).equals("open")) {
                manager = new PartitionManager(connections, given[6], state, settings, config,
                        new Partition(broker, given[2], number));
            }
            System.out.println(JSONValue.toJSONString(answer(call)));
        }
    }

    private static Object answer(List<?> call) {
        Object argument = call.size() > 1 ? call.get(1) : null;
        switch ((String) call.get(0)) {
            case "next": // [text, offset], or [] if there is none
                MESSAGES.clear();
                manager.next(new SpoutOutputCollector(new Collector()));
                return MESSAGES;
            case "ack":
                manager.ack((Long) argument);
                return null;
            case "fail":
                manager.fail((Long) argument);
                return null;
            case "commit":
                manager.commit();
                return manager.lastCompletedOffset();
            case "read":
                return state.readJSON((String) argument);
            case "write":
                state.writeJSON((String) argument, new HashMap<>((Map<?, ?>) call.get(2)));
                return null;
            default: // "open"
                return manager.lastCompletedOffset();
        }
    }

    private static class Collector implements ISpoutOutputCollector {
        @Override
        public List<Integer> emit(String stream, List<Object> tuple, Object id) {
            byte[] message = (byte[]) tuple.get(0);
            MESSAGES.addAll(Arrays.asList(new String(message), offset(id)));
            return null;
        }

        @Override
        public void emitDirect(int task, String stream, List<Object> tuple, Object id) {
            throw new UnsupportedOperationException();
        }

        @Override
        public long getPendingCount() {
            return 0;
        }

        @Override
        public void reportError(Throwable error) {
            throw new RuntimeException(error);
        }

        /** Of a message id, whose class is not public. */
        private static Object offset(Object id) {
            try {
                java.lang.reflect.Field field = id.getClass().getDeclaredField("offset");
                field.setAccessible(true);
                return field.get(id);
            } catch (ReflectiveOperationException error) {
                throw new IllegalStateException(error);
            }
        }
    }
}
