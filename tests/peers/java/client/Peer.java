// Pravega's Java client, unmodified: one request a line, one answer a line, words parted by blanks.
//
// scope NAME                                       stream SCOPE STREAM SEGMENTS
// retained SCOPE STREAM LEAST MOST                 a stream of one segment with retention by so many bytes
// rated SCOPE STREAM EVENTS FACTOR LEAST            a stream that is scaled by events per second
// times SCOPE STREAM COUNT MILLIS [transactions]   writes COUNT events, each after noting 1000, 2000 ..., with pauses;
//                                                  the LOWER-UPPER windows that a reader then has after each event
// acknowledge SCOPE GROUP STREAM SEGMENT=OFFSET... what a group has read, which decides what is retained
// head SCOPE STREAM                                SEGMENT=OFFSET of the first segments
// seal SCOPE STREAM                                truncate SCOPE STREAM SEGMENT=OFFSET...
// delete SCOPE STREAM                              seals it first
// segments SCOPE STREAM                            the ids of those that can be written to
// scale SCOPE STREAM OLD,... LOW-HIGH,...          replaces segments by others for these ranges of keys
// write SCOPE STREAM PREFIX COUNT KEYS LONGEST     events PREFIX-0 and so on, filled with dots; all acknowledged
// start SCOPE STREAM KEYS LONGEST                  writes such events in the background; PREFIX is "e"
// acknowledged                                     how many of them are, with all before them
// stop                                             ends it when all are; how many there are
// group SCOPE GROUP STREAM SEGMENT=OFFSET...       a reader group from the head, up to there
// deleteGroup SCOPE GROUP
// checkpointed SCOPE GROUP STREAM MILLIS           a reader group that makes checkpoints so often
// read SCOPE STREAM GROUP READER COUNT MILLIS [PAUSE]  SEGMENT:OFFSET-LENGTH:TEXT of each event; fewer than COUNT if none
//                                                  comes for so long. "truncated" where the reader was told so. PAUSE:
//                                                  ms before each event
// unread SCOPE GROUP                               bytes that the group has not read
// keep SCOPE STREAM                                opens a writer that `again` writes one event with
// again TEXT
// transaction SCOPE STREAM PREFIX COUNT END        END is commit or abort
// begin SCOPE STREAM PREFIX COUNT                  the id of a transaction with so many events, all flushed
// resume SCOPE STREAM ID PREFIX COUNT END          finds it in a client of its own, writes on and ends it; "look" does not
// appendBytes SCOPE STREAM TEXT                    the offset behind it
// truncateBytes SCOPE STREAM OFFSET                the head afterwards
// readBytes SCOPE STREAM OFFSET LENGTH             head, tail and text
// count SCOPE STREAM THREADS TIMES                 each thread adds 1 so often to a shared state; the sum, and again
//                                                  after the state was compacted and fetched anew
// mark SCOPE STREAM                                sets and moves the mark of a revisioned stream; which were set
// kvt ...                                          key-value tables: see Tables.java
// admin ...                                        scopes and streams: see Admin.java
// rg ..., reader ...                               reader groups and readers that live on: see Groups.java
// writer ..., txn ...                              writers and transactions that live on: see Writers.java
// batch ...                                        parts of streams without a group: see Batches.java
// bytes ...                                        byte streams: see Bytes.java
// revisions ..., state ...                         revisioned streams and shared states: see States.java
// forget                                           closes what lives on: see Kept.java

import io.pravega.client.ByteStreamClientFactory;
import io.pravega.client.ClientConfig;
import io.pravega.client.EventStreamClientFactory;
import io.pravega.client.SynchronizerClientFactory;
import io.pravega.client.admin.ReaderGroupManager;
import io.pravega.client.admin.StreamManager;
import io.pravega.client.byteStream.ByteStreamReader;
import io.pravega.client.byteStream.ByteStreamWriter;
import io.pravega.client.connection.impl.SocketConnectionFactoryImpl;
import io.pravega.client.control.impl.ControllerImpl;
import io.pravega.client.control.impl.ControllerImplConfig;
import io.pravega.client.segment.impl.Segment;
import io.pravega.client.state.Revision;
import io.pravega.client.state.RevisionedStreamClient;
import io.pravega.client.state.StateSynchronizer;
import io.pravega.client.state.SynchronizerConfig;
import io.pravega.client.state.Update;
import io.pravega.client.stream.EventRead;
import io.pravega.client.stream.EventStreamReader;
import io.pravega.client.stream.EventStreamWriter;
import io.pravega.client.stream.EventWriterConfig;
import io.pravega.client.stream.ReaderConfig;
import io.pravega.client.stream.ReaderGroup;
import io.pravega.client.stream.ReaderGroupConfig;
import io.pravega.client.stream.RetentionPolicy;
import io.pravega.client.stream.ScalingPolicy;
import io.pravega.client.stream.Stream;
import io.pravega.client.stream.StreamConfiguration;
import io.pravega.client.stream.StreamCut;
import io.pravega.client.stream.TimeWindow;
import io.pravega.client.stream.Transaction;
import io.pravega.client.stream.TransactionalEventStreamWriter;
import io.pravega.client.stream.TruncatedDataException;
import io.pravega.client.stream.impl.JavaSerializer;
import io.pravega.client.stream.impl.StreamCutImpl;
import io.pravega.client.stream.impl.UTF8StringSerializer;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

public class Peer {
    static final EventWriterConfig WRITING = EventWriterConfig.builder().automaticallyNoteTime(true).build();
    static final int SECONDS = 20;
    static ClientConfig config;
    static Background background;
    static EventStreamWriter<String> kept;

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        ClientConfig.ClientConfigBuilder builder = ClientConfig.builder().controllerURI(URI.create(args[0]));
        if (args.length > 1) { // the authority by whose certificate servers are trusted
            builder = builder.trustStore(args[1]).validateHostName(true);
        }
        config = builder.build();
        BlockingQueue<String> requests = new LinkedBlockingQueue<>();
        new Thread(() -> listen(requests)).start();
        while (true) {
            answers.println(answer(requests.take().split(" ")));
            answers.flush();
        }
    }

    // Ends the program with its input, whatever it is waiting for then.
    static void listen(BlockingQueue<String> requests) {
        new BufferedReader(new InputStreamReader(System.in)).lines().forEach(requests::add);
        Runtime.getRuntime().halt(0);
    }

    static String answer(String[] words) {
        try {
            return "ok" + run(words);
        } catch (Throwable error) {
            error.printStackTrace();
            return "failed " + error.toString().replace('\n', ' ');
        }
    }

    static String run(String[] words) throws Throwable {
        switch (words[0]) {
            case "scope":
            case "stream":
            case "retained":
            case "rated":
            case "seal":
            case "truncate":
            case "delete":
                return " " + manage(words);
            case "segments":
            case "head":
            case "scale":
                return control(words);
            case "times":
                return times(words[1], words[2], number(words[3]), number(words[4]), words.length > 5);
            case "acknowledge":
                return acknowledge(words);
            case "keep":
                kept = events(words[1]).createEventWriter(words[2], new UTF8StringSerializer(), WRITING);
                return "";
            case "again":
                kept.writeEvent("key", words[1]).get(SECONDS, TimeUnit.SECONDS);
                return "";
            case "write":
                return write(words[1], words[2], words[3], number(words[4]), number(words[5]), number(words[6]));
            case "start":
                background = new Background(words[1], words[2], number(words[3]), number(words[4]));
                background.start();
                return "";
            case "acknowledged":
                return " " + background.acknowledged;
            case "stop":
                return " " + background.finish();
            case "group":
            case "checkpointed":
            case "deleteGroup":
            case "unread":
                return group(words);
            case "read":
                return read(words[1], words[2], words[3], words[4], number(words[5]),
                    number(words[6]), words.length > 7 ? number(words[7]) : 0);
            case "transaction":
            case "begin":
            case "resume":
                return transaction(words);
            case "appendBytes":
            case "truncateBytes":
            case "readBytes":
                return bytes(words);
            case "count":
                return count(words[1], words[2], number(words[3]), number(words[4]));
            case "mark":
                return mark(words[1], words[2]);
            case "kvt":
                return Tables.run(words, config);
            default:
                return Kept.run(words);
        }
    }

    static int number(String word) {
        return Integer.parseInt(word);
    }

    // ---- scopes and streams ----

    static boolean manage(String[] words) {
        try (StreamManager manager = StreamManager.create(config)) {
            switch (words[0]) {
                case "scope":
                    return manager.createScope(words[1]);
                case "stream":
                    return manager.createStream(words[1], words[2], StreamConfiguration.builder()
                        .scalingPolicy(ScalingPolicy.fixed(number(words[3]))).build());
                case "retained":
                    return manager.createStream(words[1], words[2], StreamConfiguration.builder()
                        .scalingPolicy(ScalingPolicy.fixed(1)).retentionPolicy(
                            RetentionPolicy.bySizeBytes(Long.parseLong(words[3]), Long.parseLong(words[4]))).build());
                case "rated":
                    return manager.createStream(words[1], words[2], StreamConfiguration.builder().scalingPolicy(
                        ScalingPolicy.byEventRate(number(words[3]), number(words[4]), number(words[5]))).build());
                case "seal":
                    return manager.sealStream(words[1], words[2]);
                case "delete":
                    manager.sealStream(words[1], words[2]);
                    return manager.deleteStream(words[1], words[2]);
                default:
                    return manager.truncateStream(words[1], words[2], cut(words[1], words[2], words, 3));
            }
        }
    }

    static String control(String[] words) throws Exception {
        ScheduledExecutorService executor = Executors.newSingleThreadScheduledExecutor();
        try (SocketConnectionFactoryImpl connections = new SocketConnectionFactoryImpl(config);
             ControllerImpl controller = new ControllerImpl(
                 ControllerImplConfig.builder().clientConfig(config).build(), executor)) {
            if (words[0].equals("segments")) {
                StringJoiner ids = new StringJoiner(" ", " ", "");
                controller.getCurrentSegments(words[1], words[2]).get(SECONDS, TimeUnit.SECONDS).getSegments()
                    .stream().map(Segment::getSegmentId).sorted().forEach(id -> ids.add(id.toString()));
                return ids.toString();
            }
            if (words[0].equals("head")) {
                StringJoiner found = new StringJoiner(" ", " ", "");
                controller.getSegmentsAtTime(Stream.of(words[1], words[2]), 0).get(SECONDS, TimeUnit.SECONDS)
                    .forEach((segment, offset) -> found.add(segment.getSegmentId() + "=" + offset));
                return found.toString();
            }
            List<Long> old = new ArrayList<>();
            for (String id : words[3].split(",")) {
                old.add(Long.parseLong(id));
            }
            Map<Double, Double> ranges = new HashMap<>();
            for (String range : words[4].split(",")) {
                String[] ends = range.split("-");
                ranges.put(Double.parseDouble(ends[0]), Double.parseDouble(ends[1]));
            }
            return " " + controller.scaleStream(Stream.of(words[1], words[2]), old, ranges, executor)
                .getFuture().get(SECONDS, TimeUnit.SECONDS);
        } finally {
            executor.shutdownNow();
        }
    }

    static String times(String scope, String stream, int count, int pause, boolean inTransactions) throws Exception {
        String group = "times-" + UUID.randomUUID();
        StringJoiner windows = new StringJoiner(" ", " ", "");
        try (EventStreamClientFactory factory = events(scope);
             ReaderGroupManager groups = ReaderGroupManager.withScope(scope, config)) {
            try (EventStreamWriter<String> writer = factory.createEventWriter(stream, new UTF8StringSerializer(),
                    EventWriterConfig.builder().build());
                 TransactionalEventStreamWriter<String> transactional = factory.createTransactionalEventWriter(
                    "transactional", stream, new UTF8StringSerializer(), EventWriterConfig.builder().build())) {
                for (int index = 0; index < count; index++) {
                    if (inTransactions) {
                        Transaction<String> transaction = transactional.beginTxn();
                        transaction.writeEvent("key", "event" + index);
                        transaction.commit(1000L * (index + 1));
                    } else {
                        writer.writeEvent("key", "event" + index).get(SECONDS, TimeUnit.SECONDS);
                        writer.noteTime(1000L * (index + 1));
                    }
                    Thread.sleep(pause);
                }
            }
            groups.createReaderGroup(group, ReaderGroupConfig.builder().stream(scope + "/" + stream)
                .groupRefreshTimeMillis(500).build());
            try (EventStreamReader<String> reader = factory.createReader(group + "-r", group,
                    new UTF8StringSerializer(), ReaderConfig.builder().build())) {
                for (int index = 0; index < count; index++) {
                    reader.readNextEvent(SECONDS * 1000L);
                    Thread.sleep(1000);
                    reader.readNextEvent(0); // without an event it makes its position known
                    TimeWindow window = reader.getCurrentTimeWindow(Stream.of(scope, stream));
                    windows.add(window.getLowerTimeBound() + "-" + window.getUpperTimeBound());
                }
            }
        }
        return windows.toString();
    }

    static String acknowledge(String[] words) {
        try (ReaderGroupManager groups = ReaderGroupManager.withScope(words[1], config)) {
            String name = words[1] + "/" + words[3];
            groups.createReaderGroup(words[2], ReaderGroupConfig.builder().stream(name)
                .retentionType(ReaderGroupConfig.StreamDataRetention.MANUAL_RELEASE_AT_USER_STREAMCUT).build());
            try (ReaderGroup group = groups.getReaderGroup(words[2])) {
                Map<Stream, StreamCut> cuts = new HashMap<>();
                cuts.put(Stream.of(words[1], words[3]), cut(words[1], words[3], words, 4));
                group.updateRetentionStreamCut(cuts);
            }
            return "";
        }
    }

    static StreamCut cut(String scope, String stream, String[] words, int first) {
        Map<Segment, Long> offsets = new HashMap<>();
        for (int at = first; at < words.length; at++) {
            String[] pair = words[at].split("=");
            offsets.put(new Segment(scope, stream, Long.parseLong(pair[0])), Long.parseLong(pair[1]));
        }
        return new StreamCutImpl(Stream.of(scope, stream), offsets);
    }

    // ---- events ----

    static EventStreamClientFactory events(String scope) {
        return EventStreamClientFactory.withScope(scope, config);
    }

    static String filled(String prefix, int index, int longest) {
        StringBuilder text = new StringBuilder(prefix + "-" + index + "-");
        int length = (int) (index * 7919L % longest);
        while (text.length() < length) {
            text.append('.');
        }
        return text.toString();
    }

    static String write(String scope, String stream, String prefix, int count, int keys, int longest) throws Exception {
        try (EventStreamClientFactory factory = events(scope);
             EventStreamWriter<String> writer = factory.createEventWriter(stream, new UTF8StringSerializer(), WRITING)) {
            List<CompletableFuture<Void>> written = new ArrayList<>();
            for (int index = 0; index < count; index++) {
                written.add(writer.writeEvent("key" + index % keys, filled(prefix, index, longest)));
            }
            writer.flush();
            for (CompletableFuture<Void> one : written) {
                one.get(SECONDS, TimeUnit.SECONDS);
            }
            return "";
        }
    }

    static String group(String[] words) {
        try (ReaderGroupManager manager = ReaderGroupManager.withScope(words[1], config)) {
            if (words[0].equals("group")) {
                StreamCut end = words.length > 4 ? cut(words[1], words[3], words, 4) : StreamCut.UNBOUNDED;
                manager.createReaderGroup(words[2], ReaderGroupConfig.builder().disableAutomaticCheckpoints()
                    .stream(Stream.of(words[1], words[3]), StreamCut.UNBOUNDED, end).build());
                return "";
            }
            if (words[0].equals("deleteGroup")) {
                manager.deleteReaderGroup(words[2]);
                return "";
            }
            if (words[0].equals("checkpointed")) {
                manager.createReaderGroup(words[2], ReaderGroupConfig.builder().stream(Stream.of(words[1], words[3]))
                    .automaticCheckpointIntervalMillis(number(words[4])).build());
                return "";
            }
            try (ReaderGroup group = manager.getReaderGroup(words[2])) {
                return " " + group.getMetrics().unreadBytes();
            }
        }
    }

    static String read(String scope, String stream, String group, String name, int count, int millis,
                       int pause) throws InterruptedException {
        StringJoiner found = new StringJoiner(" ", " ", "");
        try (EventStreamClientFactory factory = events(scope);
             EventStreamReader<String> reader = factory.createReader(
                 name, group, new UTF8StringSerializer(), ReaderConfig.builder().build())) {
            for (int left = count; left > 0; left--) {
                EventRead<String> event;
                Thread.sleep(pause);
                try {
                    event = reader.readNextEvent(millis);
                } catch (TruncatedDataException error) {
                    found.add("truncated");
                    continue;
                }
                if (event.isCheckpoint()) {
                    left++;
                    continue;
                }
                if (event.getEvent() == null) {
                    break;
                }
                found.add(event.getEventPointer() + ":" + event.getEvent());
                reader.getCurrentTimeWindow(Stream.of(scope, stream));
            }
        }
        return found.toString();
    }

    static String transaction(String[] words) throws Exception {
        try (EventStreamClientFactory factory = events(words[1]);
             TransactionalEventStreamWriter<String> writer = factory.createTransactionalEventWriter(
                 words[2], new UTF8StringSerializer(), EventWriterConfig.builder().build())) {
            int at = words[0].equals("resume") ? 4 : 3;
            Transaction<String> transaction = at == 3 ? writer.beginTxn() : writer.getTxn(UUID.fromString(words[3]));
            String before = transaction.checkStatus().toString();
            for (int index = 0; index < number(words[at + 1]); index++) {
                transaction.writeEvent("key" + index, words[at] + "-" + index);
            }
            if (words[0].equals("begin")) {
                transaction.flush();
                return " " + transaction.getTxnId();
            }
            switch (words[at + 2]) {
                case "commit":
                    transaction.commit();
                    break;
                case "abort":
                    transaction.abort();
                    break;
                default:
                    return " " + before;
            }
            Transaction.Status status = transaction.checkStatus();
            for (int turn = 0; status.toString().endsWith("ING") && turn < SECONDS * 20; turn++) {
                Thread.sleep(50);
                status = transaction.checkStatus();
            }
            return " " + before + " " + status;
        }
    }

    // ---- bytes ----

    static String bytes(String[] words) throws Exception {
        try (ByteStreamClientFactory factory = ByteStreamClientFactory.withScope(words[1], config)) {
            if (words[0].equals("readBytes")) {
                try (ByteStreamReader reader = factory.createByteStreamReader(words[2])) {
                    byte[] data = new byte[number(words[4])];
                    reader.seekToOffset(Long.parseLong(words[3]));
                    int length = reader.readNBytes(data, 0, data.length);
                    return " " + reader.fetchHeadOffset() + " " + reader.fetchTailOffset() + " "
                        + new String(data, 0, length, StandardCharsets.UTF_8);
                }
            }
            try (ByteStreamWriter writer = factory.createByteStreamWriter(words[2])) {
                if (words[0].equals("appendBytes")) {
                    writer.write(words[3].getBytes(StandardCharsets.UTF_8));
                    writer.flush();
                    return " " + writer.fetchTailOffset();
                }
                writer.truncateDataBefore(Long.parseLong(words[3]));
                return " " + writer.fetchHeadOffset();
            }
        }
    }

    // ---- state ----

    static StateSynchronizer<Sum> synchronizer(SynchronizerClientFactory factory, String stream) {
        return factory.createStateSynchronizer(stream, new JavaSerializer<Add>(), new JavaSerializer<Start>(),
            SynchronizerConfig.builder().build());
    }

    static String count(String scope, String stream, int threads, int times) throws Exception {
        try (SynchronizerClientFactory factory = SynchronizerClientFactory.withScope(scope, config)) {
            List<Thread> running = new ArrayList<>();
            for (int index = 0; index < threads; index++) {
                Thread thread = new Thread(() -> {
                    try (StateSynchronizer<Sum> state = synchronizer(factory, stream)) {
                        state.initialize(new Start(0));
                        for (int turn = 0; turn < times; turn++) {
                            state.updateState((Sum sum, List<Update<Sum>> updates) -> {
                                updates.add(new Add());
                            });
                        }
                    }
                });
                thread.start();
                running.add(thread);
            }
            for (Thread thread : running) {
                thread.join();
            }
            try (StateSynchronizer<Sum> state = synchronizer(factory, stream)) {
                state.fetchUpdates();
                int sum = state.getState().value;
                state.compact(old -> new Start(old.value));
                try (StateSynchronizer<Sum> later = synchronizer(factory, stream)) {
                    later.fetchUpdates();
                    return " " + sum + " " + later.getState().value;
                }
            }
        }
    }

    static String mark(String scope, String stream) {
        try (SynchronizerClientFactory factory = SynchronizerClientFactory.withScope(scope, config);
             RevisionedStreamClient<String> client = factory.createRevisionedStreamClient(
                 stream, new UTF8StringSerializer(), SynchronizerConfig.builder().build())) {
            Revision start = client.fetchLatestRevision();
            Revision written = client.writeConditionally(start, "one");
            Revision refused = client.writeConditionally(start, "two");
            return " " + (client.getMark() == null) + " " + client.compareAndSetMark(null, start)
                + " " + client.compareAndSetMark(null, written) + " " + client.compareAndSetMark(start, written)
                + " " + written.equals(client.getMark()) + " " + (refused == null);
        }
    }
}
