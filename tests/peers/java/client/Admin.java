import io.pravega.client.admin.StreamInfo;
import io.pravega.client.admin.StreamManager;
import io.pravega.client.control.impl.ControllerImpl;
import io.pravega.client.control.impl.ControllerImplConfig;
import io.pravega.client.segment.impl.Segment;
import io.pravega.client.stream.EventPointer;
import io.pravega.client.stream.RetentionPolicy;
import io.pravega.client.stream.ScalingPolicy;
import io.pravega.client.stream.Stream;
import io.pravega.client.stream.StreamConfiguration;
import io.pravega.client.stream.TransactionInfo;
import io.pravega.client.stream.impl.UTF8StringSerializer;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.StringJoiner;
import java.util.TreeMap;
import java.util.TreeSet;

// Scopes and streams by Pravega's Java client: the requests of Peer.java that begin with "admin".
//
// admin create|update SCOPE STREAM OPTION...       whether it was. OPTION: segments=N, events=RATE/FACTOR/LEAST,
//                                                  kilobytes=RATE/FACTOR/LEAST, tags=A,B, bytes=MIN/MAX,
//                                                  millis=MIN/MAX, rollover=BYTES, aggregation=MILLIS
// admin config SCOPE STREAM                        its OPTIONs
// admin info SCOPE STREAM                          HEAD TAIL SEALED
// admin tags SCOPE STREAM
// admin list SCOPE [TAG]                           streams, in the order of names
// admin scopes                                     admin known SCOPE [STREAM]
// admin remove SCOPE                               admin removeAll SCOPE, with what it contains
// admin removeForced SCOPE                         by the older call that does the same
// admin cut NAME SCOPE STREAM CUT                  keeps a cut
// admin seal SCOPE STREAM                          admin delete SCOPE STREAM
// admin truncate SCOPE STREAM CUT
// admin completed SCOPE STREAM                     ID=STATUS of the last transactions
// admin event POINTER                              the event at a pointer that "reader pointer" kept
// admin at SCOPE STREAM MILLIS                     SEGMENT=OFFSET of the segments at a time
// admin successors SCOPE STREAM SEGMENT            SEGMENT<PREDECESSOR,... of each
// admin epoch SCOPE STREAM EPOCH                   ids of its segments
// admin between SCOPE STREAM FROM TO               ids of the segments between two cuts
// admin open SCOPE STREAM SEGMENT                  whether it can be written to
// admin subscribers SCOPE STREAM
class Admin {
    static String run(String[] words) throws Exception {
        switch (words[1]) {
            case "at":
            case "successors":
            case "epoch":
            case "between":
            case "open":
            case "subscribers":
                return " " + ask(words);
            default:
                return " " + manage(words);
        }
    }

    static Object manage(String[] words) throws Exception {
        String scope = words.length > 2 ? words[2] : null;
        String stream = words.length > 3 ? words[3] : null;
        try (StreamManager manager = StreamManager.create(Peer.config)) {
            switch (words[1]) {
                case "create":
                    return manager.createStream(scope, stream, configuration(words));
                case "update":
                    return manager.updateStream(scope, stream, configuration(words));
                case "config":
                    return options(manager.fetchStreamInfo(scope, stream).get().getStreamConfiguration());
                case "info":
                    StreamInfo info = Kept.got(manager.fetchStreamInfo(scope, stream));
                    return Kept.spelled(info.getHeadStreamCut()) + " " + Kept.spelled(info.getTailStreamCut()) + " "
                        + info.isSealed();
                case "tags":
                    return sorted(manager.getStreamTags(scope, stream));
                case "list":
                    Iterator<Stream> listed = stream == null
                        ? manager.listStreams(scope) : manager.listStreams(scope, stream);
                    TreeSet<String> names = new TreeSet<>();
                    listed.forEachRemaining(one -> names.add(one.getStreamName()));
                    return sorted(names);
                case "scopes":
                    TreeSet<String> scopes = new TreeSet<>();
                    manager.listScopes().forEachRemaining(scopes::add);
                    return sorted(scopes);
                case "known":
                    return stream == null
                        ? manager.checkScopeExists(scope) : manager.checkStreamExists(scope, stream);
                case "remove":
                    return manager.deleteScope(scope);
                case "removeAll":
                    return manager.deleteScopeRecursive(scope);
                case "removeForced":
                    return manager.deleteScope(scope, true);
                case "cut":
                    Map<Stream, Object> cuts = new HashMap<>();
                    cuts.put(Stream.of(words[3], words[4]), Kept.cut(words[3], words[4], words[5]));
                    Kept.things.put(scope, cuts);
                    return "";
                case "seal":
                    return manager.sealStream(scope, stream);
                case "delete":
                    return manager.deleteStream(scope, stream);
                case "truncate":
                    return manager.truncateStream(scope, stream, Kept.cut(scope, stream, words[4]));
                case "completed":
                    StringJoiner ended = new StringJoiner(" ");
                    for (TransactionInfo one : manager.listCompletedTransactions(Stream.of(scope, stream))) {
                        ended.add(one.getTransactionId() + "=" + one.getTransactionStatus());
                    }
                    return ended;
                case "event":
                    ByteBuffer pointer = Kept.get(ByteBuffer.class, words[2]).duplicate();
                    return Kept.got(manager.fetchEvent(EventPointer.fromBytes(pointer), new UTF8StringSerializer()));
                default:
                    throw new IllegalArgumentException(words[1]);
            }
        }
    }

    static Object ask(String[] words) throws Exception {
        Stream stream = Stream.of(words[2], words[3]);
        try (ControllerImpl controller = new ControllerImpl(
                ControllerImplConfig.builder().clientConfig(Peer.config).build(), Kept.executor)) {
            switch (words[1]) {
                case "at":
                    return Kept.offsets(Kept.got(controller.getSegmentsAtTime(stream, Long.parseLong(words[4]))), " ");
                case "successors":
                    TreeMap<Long, String> found = new TreeMap<>();
                    Kept.got(controller.getSuccessors(new Segment(words[2], words[3], Long.parseLong(words[4]))))
                        .getSegmentToPredecessor().forEach((segment, before) -> {
                            StringJoiner ids = new StringJoiner(",");
                            before.stream().sorted().forEach(id -> ids.add(id.toString()));
                            found.put(segment.getSegment().getSegmentId(), ids.toString());
                        });
                    StringJoiner text = new StringJoiner(" ");
                    found.forEach((segment, before) -> text.add(segment + "<" + before));
                    return text;
                case "epoch":
                    return ids(Kept.got(controller.getEpochSegments(words[2], words[3], Peer.number(words[4])))
                        .getSegments());
                case "between":
                    return ids(Kept.got(controller.getSegments(
                        Kept.cut(words[2], words[3], words[4]), Kept.cut(words[2], words[3], words[5]))).getSegments());
                case "open":
                    return Kept.got(controller.isSegmentOpen(
                        new Segment(words[2], words[3], Long.parseLong(words[4]))));
                default:
                    return sorted(Kept.got(controller.listSubscribers(words[2], words[3])));
            }
        }
    }

    static StreamConfiguration configuration(String[] words) {
        StreamConfiguration.StreamConfigurationBuilder builder =
            StreamConfiguration.builder().scalingPolicy(ScalingPolicy.fixed(1));
        for (int at = 4; at < words.length; at++) {
            String[] option = words[at].split("=");
            String[] values = option[1].split("/");
            long first = option[0].equals("tags") ? 0 : Long.parseLong(values[0]);
            switch (option[0]) {
                case "segments":
                    builder.scalingPolicy(ScalingPolicy.fixed((int) first));
                    break;
                case "events":
                    builder.scalingPolicy(ScalingPolicy.byEventRate(
                        (int) first, Peer.number(values[1]), Peer.number(values[2])));
                    break;
                case "kilobytes":
                    builder.scalingPolicy(ScalingPolicy.byDataRate(
                        (int) first, Peer.number(values[1]), Peer.number(values[2])));
                    break;
                case "tags":
                    builder.tags(Arrays.asList(option[1].split(",")));
                    break;
                case "bytes":
                    builder.retentionPolicy(RetentionPolicy.bySizeBytes(first, Long.parseLong(values[1])));
                    break;
                case "millis":
                    builder.retentionPolicy(RetentionPolicy.byTime(
                        Duration.ofMillis(first), Duration.ofMillis(Long.parseLong(values[1]))));
                    break;
                case "rollover":
                    builder.rolloverSizeBytes(first);
                    break;
                case "aggregation":
                    builder.timestampAggregationTimeout(first);
                    break;
                default:
                    throw new IllegalArgumentException(words[at]);
            }
        }
        return builder.build();
    }

    static String options(StreamConfiguration config) {
        StringJoiner text = new StringJoiner(" ");
        ScalingPolicy scaling = config.getScalingPolicy();
        String rate = "=" + scaling.getTargetRate() + "/" + scaling.getScaleFactor() + "/" + scaling.getMinNumSegments();
        switch (scaling.getScaleType()) {
            case FIXED_NUM_SEGMENTS:
                text.add("segments=" + scaling.getMinNumSegments());
                break;
            case BY_RATE_IN_EVENTS_PER_SEC:
                text.add("events" + rate);
                break;
            default:
                text.add("kilobytes" + rate);
        }
        if (!config.getTags().isEmpty()) {
            text.add("tags=" + sorted(config.getTags()).replace(' ', ','));
        }
        RetentionPolicy kept = config.getRetentionPolicy();
        if (kept != null) {
            String unit = kept.getRetentionType() == RetentionPolicy.RetentionType.SIZE ? "bytes=" : "millis=";
            text.add(unit + kept.getRetentionParam() + "/" + kept.getRetentionMax());
        }
        if (config.getRolloverSizeBytes() != 0) {
            text.add("rollover=" + config.getRolloverSizeBytes());
        }
        if (config.getTimestampAggregationTimeout() != 0) {
            text.add("aggregation=" + config.getTimestampAggregationTimeout());
        }
        return text.toString();
    }

    static String sorted(Collection<String> words) {
        return String.join(" ", new TreeSet<>(words));
    }

    static String ids(Collection<Segment> segments) {
        StringJoiner text = new StringJoiner(" ");
        segments.stream().map(Segment::getSegmentId).sorted().forEach(id -> text.add(id.toString()));
        return text.toString();
    }
}
