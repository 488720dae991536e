import io.pravega.client.EventStreamClientFactory;
import io.pravega.client.admin.ReaderGroupManager;
import io.pravega.client.segment.impl.Segment;
import io.pravega.client.stream.Stream;
import io.pravega.client.stream.StreamCut;
import io.pravega.client.stream.impl.StreamCutImpl;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.zip.CRC32;

// Objects that live on between requests, each by a name that the test gave it, and how requests and answers spell things.
//
// forget                                           closes all of them, without waiting for it
//
// A cut is the name under which one was kept, or SEGMENT=OFFSET,... with ids of segments, or "-" for no bound.
class Kept {
    static final Map<String, Object> things = new HashMap<>();
    static final Map<String, EventStreamClientFactory> factories = new HashMap<>(); // by scope
    static final Map<String, ReaderGroupManager> managers = new HashMap<>(); // by scope
    static final ScheduledExecutorService executor = Executors.newScheduledThreadPool(2, task -> {
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        return thread;
    });

    static String run(String[] words) throws Throwable {
        try {
            switch (words[0]) {
                case "admin":
                    return Admin.run(words);
                case "rg":
                    return Groups.group(words);
                case "reader":
                    return Groups.reader(words);
                case "writer":
                    return Writers.writer(words);
                case "txn":
                    return Writers.transaction(words);
                case "batch":
                    return Batches.run(words);
                case "bytes":
                    return Bytes.run(words);
                case "revisions":
                    return States.revisions(words);
                case "state":
                    return States.state(words);
                case "forget":
                    forget();
                    return "";
                default:
                    throw new IllegalArgumentException(words[0]);
            }
        } catch (ExecutionException | CompletionException error) {
            Throwable cause = error;
            while (cause.getCause() != null && (cause instanceof ExecutionException
                    || cause instanceof CompletionException)) {
                cause = cause.getCause();
            }
            throw cause;
        }
    }

    static <T> T get(Class<T> kind, String name) {
        Object found = things.get(name);
        if (!kind.isInstance(found)) {
            throw new IllegalArgumentException("no " + kind.getSimpleName() + " is called " + name);
        }
        return kind.cast(found);
    }

    static void forget() {
        List<Object> all = new ArrayList<>(things.values());
        all.addAll(factories.values());
        all.addAll(managers.values());
        things.clear();
        factories.clear();
        managers.clear();
        Thread closing = new Thread(() -> {
            for (Object one : all) {
                try {
                    if (one instanceof AutoCloseable) {
                        ((AutoCloseable) one).close();
                    }
                } catch (Throwable error) {
                    error.printStackTrace();
                }
            }
        });
        closing.setDaemon(true);
        closing.start();
    }

    static EventStreamClientFactory factory(String scope) {
        return factories.computeIfAbsent(scope, name -> EventStreamClientFactory.withScope(name, Peer.config));
    }

    static ReaderGroupManager manager(String scope) {
        return managers.computeIfAbsent(scope, name -> ReaderGroupManager.withScope(name, Peer.config));
    }

    static <T> T got(CompletableFuture<T> future) throws Exception {
        return future.get(Peer.SECONDS, TimeUnit.SECONDS);
    }

    // ---- spelling ----

    static StreamCut cut(String scope, String stream, String text) {
        if (text.equals("-")) {
            return StreamCut.UNBOUNDED;
        }
        if (!text.contains("=")) {
            return cuts(text).get(Stream.of(scope, stream));
        }
        Map<Segment, Long> offsets = new HashMap<>();
        for (String pair : text.split(",")) {
            String[] ends = pair.split("=");
            offsets.put(new Segment(scope, stream, Long.parseLong(ends[0])), Long.parseLong(ends[1]));
        }
        return new StreamCutImpl(Stream.of(scope, stream), offsets);
    }

    @SuppressWarnings("unchecked")
    static Map<Stream, StreamCut> cuts(String name) {
        return (Map<Stream, StreamCut>) get(Map.class, name);
    }

    // " STREAM:SEGMENT=OFFSET,..." of each stream.
    static String spelled(Map<Stream, StreamCut> cuts) {
        TreeMap<String, String> found = new TreeMap<>();
        cuts.forEach((stream, cut) -> found.put(stream.getStreamName(), spelled(cut)));
        StringJoiner text = new StringJoiner(" ", " ", "");
        found.forEach((stream, cut) -> text.add(stream + ":" + cut));
        return text.toString();
    }

    static String spelled(StreamCut cut) {
        String offsets = cut == StreamCut.UNBOUNDED ? "-" : offsets(cut.asImpl().getPositions(), ",");
        return offsets.isEmpty() ? "none" : offsets;
    }

    static String offsets(Map<Segment, Long> positions, String between) {
        TreeMap<Long, Long> sorted = new TreeMap<>();
        positions.forEach((segment, offset) -> sorted.put(segment.getSegmentId(), offset));
        StringJoiner text = new StringJoiner(between);
        sorted.forEach((segment, offset) -> text.add(segment + "=" + offset));
        return text.toString();
    }

    // An event of so many bytes that is unlike all others.
    static String numbered(int number, int bytes) {
        StringBuilder text = new StringBuilder(number + ":");
        for (int count = 0; text.length() < bytes; count++) {
            text.append(count).append(',');
        }
        text.setLength(bytes);
        return text.toString();
    }

    // LENGTH:CRC-32 of a text.
    static String sum(String text) {
        CRC32 sum = new CRC32();
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        sum.update(bytes);
        return bytes.length + ":" + sum.getValue();
    }
}
