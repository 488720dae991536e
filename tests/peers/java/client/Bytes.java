import io.pravega.client.ByteStreamClientFactory;
import io.pravega.client.byteStream.ByteStreamReader;
import io.pravega.client.byteStream.ByteStreamWriter;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

// Byte streams whose readers and writers are kept: the requests of Peer.java that begin with "bytes".
//
// bytes writer|reader NAME SCOPE STREAM            opens one
// bytes put NAME TEXT                              writes, without waiting for it
// bytes fill NAME BYTES                            the same with so many bytes; LENGTH:CRC
// bytes flush NAME                                 HEAD TAIL afterwards
// bytes seal NAME                                  closes the writer and seals the stream
// bytes truncate NAME OFFSET
// bytes get NAME MOST                              a text of one read, or "end"
// bytes all NAME COUNT                             LENGTH:CRC of as many bytes, by as many reads as it takes
// bytes seek NAME OFFSET                           the offset of the reader
// bytes skip NAME COUNT                            how many were skipped
// bytes where NAME                                 OFFSET HEAD TAIL
// bytes available NAME                             how many bytes can be read without waiting
// bytes await NAME                                 waits in the background for data
// bytes awaited NAME                               what came of that: a number, -1 at the end
// bytes close NAME
class Bytes {
    static final Map<String, CompletableFuture<Integer>> waiting = new HashMap<>();

    static String run(String[] words) throws Exception {
        String name = words[2];
        switch (words[1]) {
            case "writer":
                Kept.things.put(name, factory(words[3]).createByteStreamWriter(words[4]));
                return "";
            case "reader":
                Kept.things.put(name, factory(words[3]).createByteStreamReader(words[4]));
                return "";
            case "put":
            case "fill":
            case "flush":
            case "seal":
            case "truncate":
                return write(Kept.get(ByteStreamWriter.class, name), words);
            case "close":
                Kept.get(AutoCloseable.class, name).close();
                return "";
            default:
                return read(Kept.get(ByteStreamReader.class, name), words);
        }
    }

    static ByteStreamClientFactory factory(String scope) {
        return (ByteStreamClientFactory) Kept.things.computeIfAbsent(
            scope + "/bytes", name -> ByteStreamClientFactory.withScope(scope, Peer.config));
    }

    static String write(ByteStreamWriter writer, String[] words) throws Exception {
        switch (words[1]) {
            case "put":
                writer.write(words[3].getBytes(StandardCharsets.UTF_8));
                return "";
            case "fill":
                String text = Kept.numbered(0, Peer.number(words[3]));
                writer.write(text.getBytes(StandardCharsets.UTF_8));
                return " " + Kept.sum(text);
            case "flush":
                writer.flush();
                return " " + writer.fetchHeadOffset() + " " + writer.fetchTailOffset();
            case "seal":
                writer.closeAndSeal();
                return "";
            default:
                writer.truncateDataBefore(Long.parseLong(words[3]));
                return "";
        }
    }

    static String read(ByteStreamReader reader, String[] words) throws Exception {
        switch (words[1]) {
            case "get":
                byte[] data = new byte[Peer.number(words[3])];
                int length = reader.read(data);
                return " " + (length < 0 ? "end" : new String(data, 0, length, StandardCharsets.UTF_8));
            case "all":
                byte[] all = new byte[Peer.number(words[3])]; // not by readNBytes, whose last read of nothing waits
                for (int at = 0, more = 0; more >= 0 && at < all.length; at += more) {
                    more = reader.read(all, at, all.length - at);
                }
                return " " + Kept.sum(new String(all, StandardCharsets.UTF_8));
            case "seek":
                reader.seekToOffset(Long.parseLong(words[3]));
                return " " + reader.getOffset();
            case "skip":
                return " " + reader.skip(Long.parseLong(words[3]));
            case "where":
                return " " + reader.getOffset() + " " + reader.fetchHeadOffset() + " " + reader.fetchTailOffset();
            case "available":
                return " " + reader.available();
            case "await":
                waiting.put(words[2], reader.onDataAvailable());
                return "";
            case "awaited":
                return " " + waiting.get(words[2]).get(Peer.SECONDS, TimeUnit.SECONDS);
            default:
                throw new IllegalArgumentException(words[1]);
        }
    }
}
