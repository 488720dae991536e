import io.pravega.client.stream.Checkpoint;
import io.pravega.client.stream.EventPointer;
import io.pravega.client.stream.EventRead;
import io.pravega.client.stream.EventStreamReader;
import io.pravega.client.stream.Position;
import io.pravega.client.stream.ReaderConfig;
import io.pravega.client.stream.ReaderGroup;
import io.pravega.client.stream.ReaderGroupConfig;
import io.pravega.client.stream.ReaderGroupConfig.ReaderGroupConfigBuilder;
import io.pravega.client.stream.ReaderSegmentDistribution;
import io.pravega.client.stream.ReinitializationRequiredException;
import io.pravega.client.stream.Stream;
import io.pravega.client.stream.StreamCut;
import io.pravega.client.stream.TruncatedDataException;
import io.pravega.client.stream.impl.UTF8StringSerializer;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

// Reader groups and readers that are kept: the requests of Peer.java that begin with "rg" and "reader".
//
// rg create NAME SCOPE GROUP WORD...               whether it was created. WORD: refresh=MILLIS, checkpoints=MILLIS
//                                                  (none without it), outstanding=MOST, retention=NONE|MANUAL|AUTOMATIC,
//                                                  SCOPE/STREAM[@FROM[@TO]]
// rg open NAME SCOPE GROUP                         finds a group
// rg reset NAME [WORD...]                          without words: to its last checkpoint
// rg resetTo NAME CHECKPOINT                       to an outcome of "rg checkpoint"
// rg delete SCOPE GROUP
// rg checkpoint NAME LABEL                         begins a checkpoint
// rg generate NAME LABEL                           begins to make a cut
// rg outcome LABEL                                 waits for it, keeps its cuts as LABEL, and says them
// rg done LABEL                                    whether it is complete
// rg cancel NAME                                   the checkpoints that have begun
// rg cuts NAME LABEL                               the cut of the last positions, kept as LABEL
// rg release NAME LABEL                            acknowledges a cut, for retention
// rg offline NAME READER [READER-THAT-IS-KEPT]     declares it gone, from the position of its last event or unknown
// rg readers NAME                                  those that are online
// rg streams NAME                                  scoped names
// rg unread NAME                                   bytes
// rg spread NAME                                   free=N READER=N..., numbers of segments
// rg listen NAME segments|end                      subscribes to notifications
// rg heard NAME                                    segments=N/READERS or "end" for each, since the last time
//
// reader open NAME SCOPE GROUP                     a reader called NAME
// reader next NAME MILLIS [COUNT]                  events until there is none for so long, at most COUNT; in their place
//                                                  "checkpoint:LABEL", "truncated", and as the last word "none",
//                                                  "complete" (the group's end) or "reinitialize"
// reader sums NAME MILLIS COUNT                    the same with LENGTH:CRC of each event
// reader pointer NAME LABEL                        keeps the pointer of the last event
// reader fetch NAME LABEL                          the event at such a pointer
// reader start NAME                                reads in the background
// reader seen NAME                                 how many events it has read there
// reader stop NAME                                 ends that; the events
// reader close NAME
class Groups {
    static final Map<String, EventRead<String>> last = new HashMap<>(); // by reader
    static final Map<String, List<String>> heard = new HashMap<>(); // by group

    static {
        System.setProperty("pravega.client.segmentNotification.poll.interval.seconds", "1");
        System.setProperty("pravega.client.endOfDataNotification.poll.interval.seconds", "1");
    }

    static String group(String[] words) throws Exception {
        String name = words[2];
        switch (words[1]) {
            case "create":
                boolean created = Kept.manager(words[3]).createReaderGroup(words[4], configuration(words, 5));
                Kept.things.put(name, Kept.manager(words[3]).getReaderGroup(words[4]));
                return " " + created;
            case "open":
                Kept.things.put(name, Kept.manager(words[3]).getReaderGroup(words[4]));
                return "";
            case "delete":
                Kept.manager(words[2]).deleteReaderGroup(words[3]);
                return "";
            case "outcome":
                return outcome(name);
            case "done":
                return " " + Kept.get(CompletableFuture.class, name).isDone();
            case "heard":
                List<String> notes = heard.get(name);
                synchronized (notes) {
                    String text = String.join(" ", notes);
                    notes.clear();
                    return " " + text;
                }
            default:
                return use(Kept.get(ReaderGroup.class, name), words);
        }
    }

    static String use(ReaderGroup group, String[] words) throws Exception {
        switch (words[1]) {
            case "reset":
                if (words.length == 3) {
                    group.resetReaderGroup();
                } else {
                    group.resetReaderGroup(configuration(words, 3));
                }
                return "";
            case "resetTo":
                ByteBuffer bytes = Kept.get(ByteBuffer.class, words[3] + "/checkpoint").duplicate();
                group.resetReaderGroup(ReaderGroupConfig.builder().disableAutomaticCheckpoints()
                    .startFromCheckpoint(Checkpoint.fromBytes(bytes)).build());
                return "";
            case "checkpoint":
                Kept.things.put(words[3], group.initiateCheckpoint(words[3], Kept.executor));
                return "";
            case "generate":
                Kept.things.put(words[3], group.generateStreamCuts(Kept.executor));
                return "";
            case "cancel":
                group.cancelOutstandingCheckpoints();
                return "";
            case "cuts":
                Map<Stream, StreamCut> cuts = group.getStreamCuts();
                Kept.things.put(words[3], cuts);
                return Kept.spelled(cuts);
            case "release":
                group.updateRetentionStreamCut(Kept.cuts(words[3]));
                return "";
            case "offline":
                Position position = words.length > 4 ? last.get(words[4]).getPosition() : null;
                group.readerOffline(words[3], position);
                return "";
            case "readers":
                return " " + Admin.sorted(group.getOnlineReaders());
            case "streams":
                return " " + Admin.sorted(group.getStreamNames());
            case "unread":
                return " " + group.getMetrics().unreadBytes();
            case "spread":
                ReaderSegmentDistribution spread = group.getReaderSegmentDistribution();
                StringJoiner text = new StringJoiner(" ", " ", "");
                text.add("free=" + spread.getUnassignedSegments());
                new TreeMap<>(spread.getReaderSegmentDistribution())
                    .forEach((reader, count) -> text.add(reader + "=" + count));
                return text.toString();
            case "listen":
                List<String> notes = heard.computeIfAbsent(words[2], key -> new ArrayList<>());
                if (words[3].equals("end")) {
                    group.getEndOfDataNotifier(Kept.executor).registerListener(note -> add(notes, "end"));
                } else {
                    group.getSegmentNotifier(Kept.executor).registerListener(note -> add(
                        notes, "segments=" + note.getNumOfSegments() + "/" + note.getNumOfReaders()));
                }
                return "";
            default:
                throw new IllegalArgumentException(words[1]);
        }
    }

    static void add(List<String> notes, String note) {
        synchronized (notes) {
            notes.add(note);
        }
    }

    static String outcome(String label) throws Exception {
        Object result = Kept.get(CompletableFuture.class, label).get(Peer.SECONDS, TimeUnit.SECONDS);
        Map<Stream, StreamCut> cuts = new HashMap<>();
        if (result instanceof Checkpoint) {
            Checkpoint checkpoint = (Checkpoint) result;
            Kept.things.put(label + "/checkpoint", checkpoint.toBytes());
            cuts.putAll(checkpoint.asImpl().getPositions());
        } else {
            ((Map<?, ?>) result).forEach((stream, cut) -> cuts.put((Stream) stream, (StreamCut) cut));
        }
        Kept.things.put(label, cuts);
        return Kept.spelled(cuts);
    }

    static ReaderGroupConfig configuration(String[] words, int first) {
        ReaderGroupConfigBuilder builder = ReaderGroupConfig.builder().disableAutomaticCheckpoints();
        for (int at = first; at < words.length; at++) {
            if (words[at].contains("/")) {
                String[] parts = words[at].split("@");
                String[] stream = parts[0].split("/");
                builder.stream(Stream.of(stream[0], stream[1]),
                    parts.length > 1 ? Kept.cut(stream[0], stream[1], parts[1]) : StreamCut.UNBOUNDED,
                    parts.length > 2 ? Kept.cut(stream[0], stream[1], parts[2]) : StreamCut.UNBOUNDED);
                continue;
            }
            String[] option = words[at].split("=");
            switch (option[0]) {
                case "refresh":
                    builder.groupRefreshTimeMillis(Long.parseLong(option[1]));
                    break;
                case "checkpoints":
                    builder.automaticCheckpointIntervalMillis(Long.parseLong(option[1]));
                    break;
                case "outstanding":
                    builder.maxOutstandingCheckpointRequest(Peer.number(option[1]));
                    break;
                default:
                    builder.retentionType(option[1].equals("MANUAL")
                        ? ReaderGroupConfig.StreamDataRetention.MANUAL_RELEASE_AT_USER_STREAMCUT
                        : option[1].equals("AUTOMATIC")
                            ? ReaderGroupConfig.StreamDataRetention.AUTOMATIC_RELEASE_AT_LAST_CHECKPOINT
                            : ReaderGroupConfig.StreamDataRetention.NONE);
            }
        }
        return builder.build();
    }

    // ---- readers ----

    @SuppressWarnings("unchecked")
    static EventStreamReader<String> reader(String name) {
        return (EventStreamReader<String>) Kept.get(EventStreamReader.class, name);
    }

    static String reader(String[] words) throws Exception {
        String name = words[2];
        switch (words[1]) {
            case "open":
                Kept.things.put(name, Kept.factory(words[3]).createReader(
                    name, words[4], new UTF8StringSerializer(), ReaderConfig.builder().build()));
                return "";
            case "next":
            case "sums":
                return " " + String.join(" ", next(name, Peer.number(words[3]),
                    words.length > 4 ? Peer.number(words[4]) : 1, words[1].equals("sums")));
            case "pointer":
                Kept.things.put(words[3], last.get(name).getEventPointer().toBytes());
                return " " + last.get(name).getEventPointer();
            case "fetch":
                ByteBuffer pointer = Kept.get(ByteBuffer.class, words[3]).duplicate();
                return " " + reader(name).fetchEvent(EventPointer.fromBytes(pointer));
            case "start":
                Reading reading = new Reading(reader(name));
                Kept.things.put(name + "/reading", reading);
                reading.start();
                return "";
            case "seen":
                return " " + Kept.get(Reading.class, name + "/reading").events.size();
            case "stop":
                return " " + String.join(" ", Kept.get(Reading.class, name + "/reading").finish());
            default:
                reader(name).close();
                return "";
        }
    }

    static List<String> next(String name, int millis, int count, boolean sums) {
        List<String> found = new ArrayList<>();
        for (int events = 0; events < count;) {
            EventRead<String> read;
            try {
                read = reader(name).readNextEvent(millis);
            } catch (TruncatedDataException error) {
                found.add("truncated");
                continue;
            } catch (ReinitializationRequiredException error) {
                found.add("reinitialize");
                break;
            }
            if (read.isCheckpoint()) {
                found.add("checkpoint:" + read.getCheckpointName());
                if (count == 1) {
                    break; // each for itself, where a test goes by single steps
                }
            } else if (read.getEvent() == null) {
                found.add(read.isReadCompleted() ? "complete" : "none");
                break;
            } else {
                events++;
                last.put(name, read);
                found.add(sums ? Kept.sum(read.getEvent()) : read.getEvent());
            }
        }
        return found;
    }

    // Reads until it is told to stop.
    static class Reading extends Thread {
        final EventStreamReader<String> reader;
        final List<String> events = Collections.synchronizedList(new ArrayList<>());
        volatile boolean stopping;
        volatile Throwable failure;

        Reading(EventStreamReader<String> reader) {
            this.reader = reader;
            setDaemon(true);
        }

        @Override
        public void run() {
            try {
                while (!stopping) {
                    EventRead<String> read = reader.readNextEvent(200);
                    if (read.getEvent() != null) {
                        events.add(read.getEvent());
                    }
                }
            } catch (Throwable error) {
                failure = error;
            }
        }

        List<String> finish() throws Exception {
            stopping = true;
            join();
            if (failure != null) {
                throw new Exception(failure);
            }
            return new ArrayList<>(events);
        }
    }
}
