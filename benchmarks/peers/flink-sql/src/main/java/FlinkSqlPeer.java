// Apache Flink's SQL in one process (mini cluster): a query over bids and auctions in CSV files.
//
// Arguments: folder of the files, folder of a shorter run, parallelism, query.
//
// The tables are `bid` and `auction`, their event time is `at`. The query calls `tally` with a
// number of each of its rows; the sum of these is the answer. The query runs over the shorter
// folder first, so that the just-in-time compiler has compiled the code. The state is on the heap,
// objects are reused, and there is an exactly-once checkpoint each second. Prints one line of JSON
// about the second run: from the first record that is read to the last row. Its times are those of
// the machine's monotonic clock.

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Locale;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableDescriptor;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.functions.FunctionContext;
import org.apache.flink.table.functions.ScalarFunction;

public final class FlinkSqlPeer {
    private static final String BIDS =
        "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, ms BIGINT, "
            + "extra STRING";
    private static final String AUCTIONS =
        "id BIGINT, item STRING, description STRING, first_price BIGINT, least_price BIGINT, "
            + "ms BIGINT, expires BIGINT, seller BIGINT, category BIGINT, extra STRING";

    // Written by the tasks.
    static volatile long begun; // 0: no record is read
    static volatile long cpu; // processor time at the begin
    static final Queue<Tally> tallies = new ConcurrentLinkedQueue<>(); // one for each task

    /** Returns a time of a record, and notes when the first one is read. */
    public static class Seen extends ScalarFunction {
        public Long eval(Long ms) {
            if (begun == 0) {
                begin();
            }
            return ms;
        }

        private static synchronized void begin() {
            if (begun == 0) {
                cpu = processorTime();
                begun = System.nanoTime();
            }
        }
    }

    /** Adds the numbers of the rows; of prices with a fraction, thousandths. */
    public static class Tally extends ScalarFunction {
        private transient long sum; // read by the main thread after the end of the job
        private transient long ended;

        @Override
        public void open(FunctionContext context) {
            tallies.add(this);
        }

        public Long eval(Long value) {
            sum += value;
            ended = System.nanoTime();
            return value;
        }

        public Double eval(Double value) {
            sum += Math.round(value * 1000);
            ended = System.nanoTime();
            return value;
        }

        @Override
        public boolean isDeterministic() {
            return false; // called once for each row
        }
    }

    public static void main(String[] args) throws Exception {
        String folder = args[0];
        String shorter = args[1];
        int parallelism = Integer.parseInt(args[2]);
        String query = args[3];
        Path checkpoints = Paths.get("checkpoints").toAbsolutePath();
        run(shorter, parallelism, query, checkpoints);
        System.out.println(run(folder, parallelism, query, checkpoints));
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    /** Runs the query once. Returns the result as JSON. */
    private static String run(String folder, int parallelism, String query, Path checkpoints)
            throws Exception {
        Configuration settings = new Configuration();
        settings.setString("parallelism.default", Integer.toString(parallelism));
        settings.setString("pipeline.object-reuse", "true");
        settings.setString("restart-strategy.type", "none");
        settings.setString("execution.checkpointing.interval", "1 s");
        settings.setString("execution.checkpointing.dir", checkpoints.toUri().toString());
        var environment = TableEnvironment.create(
            EnvironmentSettings.newInstance()
                .inStreamingMode()
                .withConfiguration(settings)
                .build());
        environment.createTemporarySystemFunction("seen", Seen.class);
        environment.createTemporarySystemFunction("tally", Tally.class);
        declare(environment, "bid", BIDS, folder + "/bids");
        declare(environment, "auction", AUCTIONS, folder + "/auctions");
        begun = 0;
        tallies.clear();
        environment.sqlQuery(query)
            .executeInsert(TableDescriptor.forConnector("blackhole").build())
            .await();
        long used = processorTime() - cpu;
        long sum = 0;
        long ended = 0;
        for (Tally tally : tallies) {
            sum += tally.sum;
            ended = Math.max(ended, tally.ended);
        }
        return String.format(
            Locale.ROOT,
            "{\"begun_s\": %.6f, \"ended_s\": %.6f, \"done\": %d, \"cpu_s\": %.3f}",
            begun / 1e9, ended / 1e9, sum, used / 1e9);
    }

    private static void declare(
            TableEnvironment environment, String name, String columns, String folder) {
        environment.executeSql(
            "CREATE TABLE " + name + " (" + columns + ", `at` AS TO_TIMESTAMP_LTZ(seen(ms), 3), "
                + "WATERMARK FOR `at` AS `at` - INTERVAL '2' SECOND) WITH ("
                + "'connector' = 'filesystem', 'format' = 'csv', 'path' = 'file://" + folder
                + "')");
    }

    private static long processorTime() {
        var system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime();
    }
}
