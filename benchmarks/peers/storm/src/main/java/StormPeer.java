// Apache Storm in one process (LocalCluster): word counts, and numbers that are discarded; all acked.
//
// Arguments: workload, input, tasks of each component, batch size, pending tuples, repeats; with
// `wcp` also an interpreter of Python and the file of its bolts.
//   wc    input is a file of lines; the count emits nothing
//   wcp   the same with bolts in Python, each task of which is a process
//   wcb   input is a file of lines; the count emits a total for each word
//   null  input is a number of seconds: numbers from a spout to a sink
//   id    the same through a bolt that emits its input
//
// The workload runs `repeats` times in one topology, so that the just-in-time compiler has compiled
// the code; a repeat begins when all tuples of the previous one are acked. Prints one line of JSON
// about the last repeat. Its times are those of the machine's monotonic clock.

import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Queue;
import java.util.StringTokenizer;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.storm.Config;
import org.apache.storm.LocalCluster;
import org.apache.storm.spout.SpoutOutputCollector;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.ShellBolt;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.IRichBolt;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.topology.base.BaseRichSpout;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;

public final class StormPeer {
    private static final long TIMEOUT_NS = 120_000_000_000L;

    // Written by the main thread between two repeats.
    static volatile int repeat = -1; // the repeat that spouts may emit
    static volatile long goal; // the tuples of spouts in a repeat; -1: not known yet

    // Written by the tasks.
    static final AtomicInteger ready = new AtomicInteger();
    static final AtomicLong begun = new AtomicLong();
    static final AtomicLong acked = new AtomicLong();
    static final AtomicLong failed = new AtomicLong();
    static final Queue<Count> counts = new ConcurrentLinkedQueue<>();
    static volatile long ended;

    /** A spout that emits its tuples once for each repeat. */
    abstract static class Source extends BaseRichSpout {
        SpoutOutputCollector out;
        private int current = -1;
        private boolean emits;

        @Override
        public void open(
                Map<String, Object> conf, TopologyContext place, SpoutOutputCollector out) {
            this.out = out;
            ready.incrementAndGet();
        }

        @Override
        public void nextTuple() {
            if (repeat > current) {
                current = repeat;
                emits = true;
                long now = System.nanoTime();
                begun.accumulateAndGet(now, Math::min);
                rewind(now);
            }
            if (emits) {
                emits = emit();
            }
        }

        /** Starts a repeat, at this time. */
        abstract void rewind(long now);

        /** Emits one tuple. Returns whether there are more. */
        abstract boolean emit();

        @Override
        public void ack(Object id) {
            if (acked.incrementAndGet() == goal) {
                ended = System.nanoTime();
            }
        }

        @Override
        public void fail(Object id) {
            failed.incrementAndGet();
        }
    }

    /** The lines of a file; each task has its share. */
    static class Lines extends Source {
        private final String path;
        private List<String> lines;
        private int first;
        private int step;
        private int next;

        Lines(String path) {
            this.path = path;
        }

        @Override
        public void open(
                Map<String, Object> conf, TopologyContext place, SpoutOutputCollector out) {
            lines = readLines(path);
            first = place.getThisTaskIndex();
            step = place.getComponentTasks(place.getThisComponentId()).size();
            super.open(conf, place, out);
        }

        @Override
        void rewind(long now) {
            next = first;
        }

        @Override
        boolean emit() {
            out.emit(new Values(lines.get(next)), next);
            next += step;
            return next < lines.size();
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("text"));
        }
    }

    /** Numbers for some seconds; there is one task of it. */
    static class Numbers extends Source {
        private final double seconds;
        private long end;
        private long next;

        Numbers(double seconds) {
            this.seconds = seconds;
        }

        @Override
        void rewind(long now) {
            end = now + (long) (seconds * 1e9);
            next = 0;
        }

        @Override
        boolean emit() {
            out.emit(new Values(next), next);
            next++;
            if ((next & 63) != 0 || System.nanoTime() < end) {
                return true;
            }
            goal = next; // the same thread receives the acks, so it misses none
            return false;
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("value"));
        }
    }

    /** A bolt that acks. */
    abstract static class Step extends BaseRichBolt {
        OutputCollector out;

        @Override
        public void prepare(Map<String, Object> conf, TopologyContext place, OutputCollector out) {
            this.out = out;
            ready.incrementAndGet();
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
        }
    }

    /** Emits the words of a line. */
    static class Split extends Step {
        @Override
        public void execute(Tuple tuple) {
            StringTokenizer words = new StringTokenizer(tuple.getString(0));
            while (words.hasMoreTokens()) {
                out.emit(tuple, new Values(words.nextToken()));
            }
            out.ack(tuple);
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("word"));
        }
    }

    /** Counts words, and emits each total if `emits`. */
    static class Count extends Step {
        private final boolean emits;
        private transient Map<String, Integer> totals;
        private long counted; // read by the main thread after the acks of all words

        Count(boolean emits) {
            this.emits = emits;
        }

        @Override
        public void prepare(Map<String, Object> conf, TopologyContext place, OutputCollector out) {
            totals = new HashMap<>();
            counts.add(this);
            super.prepare(conf, place, out);
        }

        @Override
        public void execute(Tuple tuple) {
            String word = tuple.getString(0);
            int total = totals.merge(word, 1, Integer::sum);
            counted++;
            if (emits) {
                out.emit(tuple, new Values(word, total));
            }
            out.ack(tuple);
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            if (emits) {
                declarer.declare(new Fields("word", "times"));
            }
        }
    }

    /** A bolt in Python. */
    static class PythonBolt extends ShellBolt implements IRichBolt {
        private final String[] fields;

        PythonBolt(String[] command, String... fields) {
            super(command);
            this.fields = fields;
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            if (fields.length > 0) {
                declarer.declare(new Fields(fields));
            }
        }

        @Override
        public Map<String, Object> getComponentConfiguration() {
            return null;
        }
    }

    /** Emits its input. */
    static class Id extends Step {
        @Override
        public void execute(Tuple tuple) {
            out.emit(tuple, new Values(tuple.getValue(0)));
            out.ack(tuple);
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("value"));
        }
    }

    /** Discards its input. */
    static class Sink extends Step {
        @Override
        public void execute(Tuple tuple) {
            out.ack(tuple);
        }
    }

    public static void main(String[] args) throws Exception {
        String workload = args[0];
        String input = args[1];
        int tasks = Integer.parseInt(args[2]);
        int batch = Integer.parseInt(args[3]);
        int pending = Integer.parseInt(args[4]);
        int repeats = Integer.parseInt(args[5]);
        boolean counts = workload.startsWith("wc");
        boolean python = workload.equals("wcp");
        TopologyBuilder builder = python ? countingInPython(input, tasks, args[6], args[7])
            : counts ? countingWords(workload, input, tasks)
            : passingNumbers(workload, input);
        int expected = python ? tasks : counts ? 3 * tasks : workload.equals("id") ? 3 : 2;
        long lines = counts ? readLines(input).size() : -1;
        long words = python ? wordsOf(input) : -1; // the acks say that all are counted
        try (LocalCluster cluster = new LocalCluster()) {
            cluster.submitTopology("peer", settings(batch, pending), builder.createTopology());
            for (long end = System.nanoTime() + TIMEOUT_NS; ready.get() < expected; ) {
                pause(end);
            }
            String told = "";
            for (int number = 0; number < repeats; number++) {
                told = run(number, lines, words);
            }
            System.out.println(told);
            System.out.flush();
            Runtime.getRuntime().halt(0); // closing the cluster would take seconds
        }
    }

    private static TopologyBuilder countingWords(String workload, String input, int tasks) {
        TopologyBuilder builder = new TopologyBuilder();
        builder.setSpout("source", new Lines(input), tasks);
        builder.setBolt("split", new Split(), tasks).localOrShuffleGrouping("source");
        builder.setBolt("count", new Count(workload.equals("wcb")), tasks)
            .fieldsGrouping("split", new Fields("word"));
        return builder;
    }

    private static TopologyBuilder countingInPython(
            String input, int tasks, String python, String bolts) {
        TopologyBuilder builder = new TopologyBuilder();
        builder.setSpout("source", new Lines(input), tasks);
        builder.setBolt("split", new PythonBolt(new String[] {python, bolts, "split"}, "word"), tasks)
            .localOrShuffleGrouping("source");
        builder.setBolt("count", new PythonBolt(new String[] {python, bolts, "count"}), tasks)
            .fieldsGrouping("split", new Fields("word"));
        return builder;
    }

    private static long wordsOf(String input) {
        return readLines(input).stream()
            .mapToLong(line -> new StringTokenizer(line).countTokens())
            .sum();
    }

    private static TopologyBuilder passingNumbers(String workload, String input) {
        TopologyBuilder builder = new TopologyBuilder();
        builder.setSpout("source", new Numbers(Double.parseDouble(input)));
        String before = "source";
        if (workload.equals("id")) {
            before = "id";
            builder.setBolt(before, new Id()).localOrShuffleGrouping("source");
        }
        builder.setBolt("sink", new Sink()).localOrShuffleGrouping(before);
        return builder;
    }

    private static Config settings(int batch, int pending) {
        Config conf = new Config();
        conf.setNumAckers(1);
        conf.setMaxSpoutPending(pending);
        conf.setMessageTimeoutSecs(120);
        conf.put(Config.TOPOLOGY_PRODUCER_BATCH_SIZE, batch);
        conf.put(Config.TOPOLOGY_TRANSFER_BATCH_SIZE, batch);
        conf.put(Config.TOPOLOGY_EXECUTOR_RECEIVE_BUFFER_SIZE, 32768);
        conf.put(Config.TOPOLOGY_DISABLE_LOADAWARE_MESSAGING, true);
        conf.put(Config.TOPOLOGY_STATS_SAMPLE_RATE, 0.001);
        conf.put(Config.TOPOLOGY_BOLT_WAIT_STRATEGY, "org.apache.storm.policy.WaitStrategyPark");
        return conf;
    }

    /**
     * Runs the workload once. Returns its result as JSON. `lines`: -1 for numbers. `words`: -1 if
     * the bolts of this process count them.
     */
    private static String run(int number, long lines, long words) throws InterruptedException {
        var system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long countedBefore = counted();
        begun.set(Long.MAX_VALUE);
        ended = 0;
        acked.set(0);
        goal = lines;
        long cpu = system.getProcessCpuTime();
        repeat = number;
        for (long end = System.nanoTime() + TIMEOUT_NS; ended == 0; ) {
            pause(end);
        }
        cpu = system.getProcessCpuTime() - cpu;
        long done = words >= 0 ? words : lines < 0 ? acked.get() : counted() - countedBefore;
        return String.format(
            Locale.ROOT,
            "{\"begun_s\": %.6f, \"ended_s\": %.6f, \"done\": %d, \"cpu_s\": %.3f}",
            begun.get() / 1e9, ended / 1e9, done, cpu / 1e9);
    }

    private static void pause(long end) throws InterruptedException {
        if (failed.get() > 0) {
            throw new IllegalStateException(failed.get() + " tuples have failed");
        }
        if (System.nanoTime() > end) {
            throw new IllegalStateException("too slow: " + acked.get() + " tuples are acked");
        }
        Thread.sleep(5);
    }

    private static long counted() {
        return counts.stream().mapToLong(count -> count.counted).sum();
    }

    private static List<String> readLines(String path) {
        try {
            return Files.readAllLines(Paths.get(path));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
