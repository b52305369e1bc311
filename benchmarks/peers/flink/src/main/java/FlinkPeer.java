// Apache Flink in one process (mini cluster): word counts with exactly-once checkpoints.
//
// Arguments: workload, file of lines, parallelism, repeats.
//   wc    the count emits nothing
//   wcb   the count emits a total for each word
//
// All lines are counted `repeats` times by one job, so that the just-in-time compiler has compiled
// the code; a repeat begins when all words of the previous one are counted. The state is on the
// heap, objects are reused, and there is a checkpoint each second. Prints one line of JSON about the
// last repeat. Its times are those of the machine's monotonic clock.

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.List;
import java.util.Locale;
import java.util.Queue;
import java.util.StringTokenizer;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.RestartStrategyOptions;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.DiscardingSink;
import org.apache.flink.streaming.api.functions.source.RichParallelSourceFunction;
import org.apache.flink.util.Collector;

public final class FlinkPeer {
    private static final long TIMEOUT_NS = 120_000_000_000L;
    private static final long CHECKPOINT_MS = 1000;

    static volatile int repeat = -1; // written by the main thread: the repeat that may begin

    // Written by the tasks.
    static final AtomicInteger ready = new AtomicInteger();
    static final AtomicLong begun = new AtomicLong();
    static final Queue<AtomicLong> counts = new ConcurrentLinkedQueue<>(); // one for each task

    /** The lines of a file; each task has its share. */
    static class Lines extends RichParallelSourceFunction<String> {
        private final String path;
        private final int repeats;
        private volatile boolean active = true;

        Lines(String path, int repeats) {
            this.path = path;
            this.repeats = repeats;
        }

        @Override
        public void run(SourceContext<String> context) throws Exception {
            List<String> lines = Files.readAllLines(Paths.get(path));
            int first = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
            int step = getRuntimeContext().getTaskInfo().getNumberOfParallelSubtasks();
            ready.incrementAndGet();
            for (int number = 0; number < repeats; number++) {
                while (active && repeat < number) {
                    Thread.sleep(1);
                }
                begun.accumulateAndGet(System.nanoTime(), Math::min);
                for (int i = first; active && i < lines.size(); i += step) {
                    synchronized (context.getCheckpointLock()) {
                        context.collect(lines.get(i));
                    }
                }
            }
        }

        @Override
        public void cancel() {
            active = false;
        }
    }

    /** Emits the words of a line. */
    static class Split implements FlatMapFunction<String, String> {
        @Override
        public void flatMap(String line, Collector<String> out) {
            StringTokenizer words = new StringTokenizer(line);
            while (words.hasMoreTokens()) {
                out.collect(words.nextToken());
            }
        }
    }

    /** Counts words, and emits each total if `emits`. */
    static class Count extends KeyedProcessFunction<String, String, Tuple2<String, Integer>> {
        private final boolean emits;
        private transient ValueState<Integer> total;
        private transient AtomicLong counted;

        Count(boolean emits) {
            this.emits = emits;
        }

        @Override
        public void open(Configuration settings) {
            total = getRuntimeContext().getState(new ValueStateDescriptor<>("total", Types.INT));
            counted = new AtomicLong();
            counts.add(counted);
            ready.incrementAndGet();
        }

        @Override
        public void processElement(
                String word, Context context, Collector<Tuple2<String, Integer>> out)
                throws Exception {
            Integer before = total.value();
            int now = before == null ? 1 : before + 1;
            total.update(now);
            if (emits) {
                out.collect(Tuple2.of(word, now));
            }
            counted.lazySet(counted.get() + 1); // written only by this thread
        }
    }

    public static void main(String[] args) throws Exception {
        boolean emits = args[0].equals("wcb");
        String path = args[1];
        int parallelism = Integer.parseInt(args[2]);
        int repeats = Integer.parseInt(args[3]);
        long words = Files.readAllLines(Paths.get(path)).stream()
            .mapToLong(line -> new StringTokenizer(line).countTokens())
            .sum();
        Configuration settings = new Configuration();
        settings.set(RestartStrategyOptions.RESTART_STRATEGY, "none");
        var environment = StreamExecutionEnvironment.createLocalEnvironment(parallelism, settings);
        environment.getConfig().enableObjectReuse();
        environment.enableCheckpointing(CHECKPOINT_MS); // exactly once is the default
        environment.addSource(new Lines(path, repeats))
            .flatMap(new Split()).returns(Types.STRING)
            .keyBy(word -> word, Types.STRING)
            .process(new Count(emits)).returns(Types.TUPLE(Types.STRING, Types.INT))
            .addSink(new DiscardingSink<>());
        var job = environment.executeAsync("words").getJobExecutionResult();
        for (long end = System.nanoTime() + TIMEOUT_NS; ready.get() < 2 * parallelism; ) {
            pause(job, end);
        }
        String told = "";
        for (int number = 0; number < repeats; number++) {
            told = run(number, words, job);
        }
        job.get();
        long extra = counted() - repeats * words;
        if (extra != 0) {
            throw new IllegalStateException(extra + " words were counted twice");
        }
        System.out.println(told);
    }

    /** Counts all words once. Returns the result as JSON. */
    private static String run(int number, long words, CompletableFuture<?> job) throws Exception {
        var system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long before = counted();
        begun.set(Long.MAX_VALUE);
        long cpu = system.getProcessCpuTime();
        repeat = number;
        for (long end = System.nanoTime() + TIMEOUT_NS; counted() - before < words; ) {
            pause(job, end);
        }
        long ended = System.nanoTime();
        cpu = system.getProcessCpuTime() - cpu;
        return String.format(
            Locale.ROOT,
            "{\"begun_s\": %.6f, \"ended_s\": %.6f, \"done\": %d, \"cpu_s\": %.3f}",
            begun.get() / 1e9, ended / 1e9, counted() - before, cpu / 1e9);
    }

    private static void pause(CompletableFuture<?> job, long end) throws Exception {
        if (job.isCompletedExceptionally()) {
            job.get(); // throws the error of the job
        }
        if (System.nanoTime() > end) {
            throw new IllegalStateException("too slow: " + counted() + " words are counted");
        }
        Thread.sleep(1);
    }

    private static long counted() {
        return counts.stream().mapToLong(AtomicLong::get).sum();
    }
}
