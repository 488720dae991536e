import io.pravega.client.BatchClientFactory;
import io.pravega.client.batch.SegmentIterator;
import io.pravega.client.batch.SegmentRange;
import io.pravega.client.batch.StreamSegmentsIterator;
import io.pravega.client.batch.impl.SegmentRangeImpl;
import io.pravega.client.segment.impl.Segment;
import io.pravega.client.stream.Stream;
import io.pravega.client.stream.impl.UTF8StringSerializer;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.StringJoiner;

// Parts of streams without a reader group: the requests of Peer.java that begin with "batch".
//
// batch ranges NAME SCOPE STREAM FROM TO           the cuts between which they are, then SEGMENT:START-END of each part
//                                                  between two cuts; kept as NAME
// batch read NAME SCOPE                            the events of these parts, one part after the other
// batch part SCOPE STREAM SEGMENT START END        the events of a part that is given by its offsets
class Batches {
    static String run(String[] words) {
        String scope = words[1].equals("part") ? words[2] : words[3];
        try (BatchClientFactory factory = BatchClientFactory.withScope(scope, Peer.config)) {
            StringJoiner found = new StringJoiner(" ", " ", "");
            switch (words[1]) {
                case "ranges":
                    StreamSegmentsIterator segments = factory.getSegments(Stream.of(scope, words[4]),
                        Kept.cut(scope, words[4], words[5]), Kept.cut(scope, words[4], words[6]));
                    List<SegmentRange> ranges = new ArrayList<>();
                    segments.getIterator().forEachRemaining(ranges::add);
                    ranges.sort(Comparator.comparing(SegmentRange::getSegmentId));
                    found.add(Kept.spelled(segments.getStartStreamCut()));
                    found.add(Kept.spelled(segments.getEndStreamCut()));
                    ranges.forEach(one ->
                        found.add(one.getSegmentId() + ":" + one.getStartOffset() + "-" + one.getEndOffset()));
                    Kept.things.put(words[2], ranges);
                    break;
                case "read":
                    for (Object one : Kept.get(List.class, words[2])) {
                        read(factory, (SegmentRange) one, found);
                    }
                    break;
                default:
                    read(factory, SegmentRangeImpl.builder()
                        .segment(new Segment(scope, words[3], Long.parseLong(words[4])))
                        .startOffset(Long.parseLong(words[5])).endOffset(Long.parseLong(words[6])).build(), found);
            }
            return found.toString();
        }
    }

    static void read(BatchClientFactory factory, SegmentRange range, StringJoiner found) {
        try (SegmentIterator<String> events = factory.readSegment(range, new UTF8StringSerializer())) {
            events.forEachRemaining(found::add);
        }
    }
}
