import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.storm.daemon.Acker;
import org.apache.storm.daemon.GrouperFactory;
import org.apache.storm.generated.Grouping;
import org.apache.storm.generated.NullStruct;
import org.apache.storm.grouping.LoadAwareCustomStreamGrouping;
import org.apache.storm.grouping.PartialKeyGrouping;
import org.apache.storm.kafka.spout.KafkaSpoutMessageId;
import org.apache.storm.kafka.spout.internal.OffsetManager;
import org.apache.storm.task.IOutputCollector;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.trident.topology.state.RotatingTransactionalState;
import org.apache.storm.trident.topology.state.TransactionalState;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.utils.RotatingMap;
import org.apache.storm.utils.Utils;
import org.json.simple.JSONArray;
import org.json.simple.JSONValue;

/**
 * Runs classes of Storm 2.8. Each line of the input is a JSON array: the name of a class, its
 * arguments, and a list of calls; the answer is a line with one result for each call.
 */
public class Storm2 {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            List<?> request = (List<?>) JSONValue.parseWithException(line);
            JSONArray results = new JSONArray();
            Calls calls = open((String) request.get(0), (List<?>) request.get(1));
            for (Object call : (List<?>) request.get(2)) {
                results.add(calls.call((List<?>) call));
            }
            calls.close();
            System.out.println(results.toJSONString());
        }
    }

    interface Calls {
        Object call(List<?> call) throws Exception;

        default void close() {}
    }

    static Calls open(String name, List<?> arguments) {
        switch (name) {
            case "Acker":
                return new AckerCalls();
            case "RotatingMap":
                return rotatingMap(number(arguments.get(0)).intValue());
            case "Grouper":
                return grouper((String) arguments.get(0), number(arguments.get(1)).intValue());
            case "OffsetManager":
                return offsetManager(number(arguments.get(0)));
            case "RotatingTransactionalState":
                return rotatingState(arguments);
            case "TransactionalState":
                return transactionalState(arguments);
            default:
                throw new IllegalArgumentException(name);
        }
    }

    static Long number(Object value) {
        return (Long) value;
    }

    /** ["__ack_init", root, xor, task], ["__ack_ack", root, xor], ["__ack_fail", root], ["__tick"]. */
    static class AckerCalls implements Calls {
        private final Acker acker = new Acker();
        private JSONArray emitted;

        AckerCalls() {
            IOutputCollector collector = proxy(IOutputCollector.class, (method, given) -> {
                if (method.equals("emitDirect")) {
                    emitted.addAll(Arrays.asList(given[1], given[0], ((List<?>) given[3]).get(0)));
                }
                return null;
            });
            acker.prepare(new HashMap<>(), null, new OutputCollector(collector));
        }

        @Override
        public Object call(List<?> call) {
            emitted = new JSONArray();
            boolean isTick = call.get(0).equals("__tick");
            acker.execute(proxy(Tuple.class, (method, given) -> {
                switch (method) {
                    case "getSourceComponent":
                        return isTick ? "__system" : "component";
                    case "getSourceStreamId":
                        return call.get(0);
                    case "getSourceTask":
                        return 1;
                    case "getInteger":
                        return number(call.get((Integer) given[0] + 1)).intValue();
                    default:
                        return call.get((Integer) given[0] + 1); // getValue and getLong
                }
            }));
            return emitted;
        }
    }

    /** ["put", key, value], ["get", key], ["remove", key], ["size"], ["rotate"]: what has expired. */
    static Calls rotatingMap(int buckets) {
        RotatingMap<Object, Object> map = new RotatingMap<>(buckets);
        return call -> {
            switch ((String) call.get(0)) {
                case "put":
                    map.put(call.get(1), call.get(2));
                    return null;
                case "get":
                    return map.get(call.get(1));
                case "remove":
                    return map.remove(call.get(1));
                case "size":
                    return (long) map.size();
                default:
                    return new ArrayList<>(map.rotate().keySet());
            }
        };
    }

    /** Calls are the values of tuples with the fields "key" and "other"; the tasks are 10, 11, … */
    static Calls grouper(String kind, int tasks) {
        Grouping grouping = new Grouping();
        switch (kind) {
            case "fields":
                grouping.set_fields(Arrays.asList("key"));
                break;
            case "global":
                grouping.set_fields(new ArrayList<>());
                break;
            case "all":
                grouping.set_all(new NullStruct());
                break;
            case "none":
                grouping.set_none(new NullStruct());
                break;
            case "partial key": // of all values, so the calls have the key alone
                grouping.set_custom_serialized(Utils.javaSerialize(new PartialKeyGrouping()));
                break;
            default:
                grouping.set_shuffle(new NullStruct());
        }
        List<Integer> targets = new ArrayList<>();
        for (int task = tasks - 1; task >= 0; task--) {
            targets.add(10 + task);
        }
        Map<String, Object> settings = new HashMap<>();
        settings.put("topology.disable.loadaware.messaging", true);
        LoadAwareCustomStreamGrouping grouper = GrouperFactory.mkGrouper(
                null, "component", "default", new Fields("key", "other"), grouping, targets, settings);
        return call -> new ArrayList<>(grouper.chooseTasks(1, new ArrayList<Object>(call)));
    }

    /** ["emit", offset], ["ack", offset], ["next"]: the offset to commit; ["commit"] commits it. */
    static Calls offsetManager(long first) {
        TopicPartition partition = new TopicPartition("topic", 0);
        OffsetManager manager = new OffsetManager(partition, first);
        return call -> {
            OffsetAndMetadata next;
            switch ((String) call.get(0)) {
                case "emit":
                    manager.addToEmitMsgs(number(call.get(1)));
                    return null;
                case "ack":
                    manager.addToAckMsgs(new KafkaSpoutMessageId(partition, number(call.get(1))));
                    return null;
                case "next":
                    next = manager.findNextCommitOffset("");
                    return next == null ? manager.getCommittedOffset() : next.offset();
                default:
                    next = manager.findNextCommitOffset("");
                    if (next != null) {
                        manager.commit(next);
                    }
                    return manager.getCommittedOffset();
            }
        };
    }

    /** ["last"], ["get", txid], ["previous", txid], ["override", txid, value], ["cleanup", txid]. */
    static Calls rotatingState(List<?> arguments) {
        TransactionalState state = state(arguments);
        RotatingTransactionalState rotating =
                new RotatingTransactionalState(state, (String) arguments.get(4));
        return new Calls() {
            @Override
            public Object call(List<?> call) {
                switch ((String) call.get(0)) {
                    case "last":
                        return rotating.getLastState();
                    case "get":
                        return rotating.getState(number(call.get(1)));
                    case "previous":
                        return rotating.getPreviousState(number(call.get(1)));
                    case "override":
                        rotating.overrideState(number(call.get(1)), call.get(2));
                        return null;
                    case "remove":
                        rotating.removeState(number(call.get(1)));
                        return null;
                    default:
                        rotating.cleanupBefore(number(call.get(1)));
                        return null;
                }
            }

            @Override
            public void close() {
                state.close();
            }
        };
    }

    /** ["get", path], ["set", path, value], ["list", path]. */
    static Calls transactionalState(List<?> arguments) {
        TransactionalState state = state(arguments);
        return new Calls() {
            @Override
            public Object call(List<?> call) {
                switch ((String) call.get(0)) {
                    case "get":
                        return state.getData((String) call.get(1));
                    case "list":
                        return state.list((String) call.get(1));
                    default:
                        state.setData((String) call.get(1), call.get(2));
                        return null;
                }
            }

            @Override
            public void close() {
                state.close();
            }
        };
    }

    /** Arguments: the port of ZooKeeper, the root, "user" or "coordinator", and the id. */
    static TransactionalState state(List<?> arguments) {
        Map<String, Object> settings = Utils.readDefaultConfig();
        settings.put("transactional.zookeeper.servers", Arrays.asList("127.0.0.1"));
        settings.put("transactional.zookeeper.port", number(arguments.get(0)).intValue());
        settings.put("transactional.zookeeper.root", arguments.get(1));
        String id = (String) arguments.get(3);
        return arguments.get(2).equals("user")
                ? TransactionalState.newUserState(settings, id)
                : TransactionalState.newCoordinatorState(settings, id);
    }

    interface Handler {
        Object handle(String method, Object[] given);
    }

    static <T> T proxy(Class<T> type, Handler handler) {
        return type.cast(Proxy.newProxyInstance(
                type.getClassLoader(), new Class<?>[] {type},
                (self, method, given) -> handler.handle(method.getName(), given)));
    }
}
