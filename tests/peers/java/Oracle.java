// The segment store's own protocol classes, as an oracle: one question a line, one answer a line, all bytes in hex.
//
// message BYTES            what the released protocol's classes read, and write again
// appends BYTES            the appends that its server makes of a connection's bytes
// client BLOCK SIZE...     the bytes of its client that appends events of these sizes with blocks of that size

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufOutputStream;
import io.netty.buffer.Unpooled;
import io.netty.buffer.ByteBufUtil;
import io.netty.channel.embedded.EmbeddedChannel;
import io.pravega.shared.metrics.MetricNotifier;
import io.pravega.shared.protocol.netty.Append;
import io.pravega.shared.protocol.netty.AppendBatchSizeTracker;
import io.pravega.shared.protocol.netty.AppendDecoder;
import io.pravega.shared.protocol.netty.CommandDecoder;
import io.pravega.shared.protocol.netty.CommandEncoder;
import io.pravega.shared.protocol.netty.WireCommand;
import io.pravega.shared.protocol.netty.WireCommands;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.StringJoiner;
import java.util.UUID;

public class Oracle {
    static final UUID WRITER = UUID.fromString("00112233-4455-6677-8899-aabbccddeeff");

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(answer(line.split(" ")));
        }
    }

    static String answer(String[] question) {
        try {
            switch (question[0]) {
                case "message":
                    return message(bytes(question[1]));
                case "appends":
                    return appends(bytes(question[1]));
                case "client":
                    return client(question);
                default:
                    throw new IllegalArgumentException(question[0]);
            }
        } catch (Throwable error) {
            return "refused " + error.getClass().getSimpleName();
        }
    }

    static ByteBuf bytes(String hex) {
        return Unpooled.wrappedBuffer(ByteBufUtil.decodeHexDump(hex));
    }

    static String message(ByteBuf data) throws Exception {
        WireCommand command = CommandDecoder.parseCommand(data);
        ByteBuf body = Unpooled.buffer();
        command.writeFields(new ByteBufOutputStream(body));
        ByteBuf whole = Unpooled.buffer();
        whole.writeInt(command.getType().getCode());
        whole.writeInt(body.readableBytes());
        whole.writeBytes(body);
        return command.getClass().getSimpleName() + " " + ByteBufUtil.hexDump(whole);
    }

    static String appends(ByteBuf data) {
        EmbeddedChannel channel = new EmbeddedChannel(
            new io.netty.handler.codec.LengthFieldBasedFrameDecoder(0xFFFFFF, 4, 4), new CommandDecoder(), new AppendDecoder());
        channel.writeInbound(data);
        StringJoiner found = new StringJoiner(" ", "appends ", "");
        for (Object one = channel.readInbound(); one != null; one = channel.readInbound()) {
            if (one instanceof Append) {
                Append append = (Append) one;
                found.add(append.getEventNumber() + "," + append.getEventCount() + "," + append.getRequestId() + ","
                    + ByteBufUtil.hexDump(append.getData()));
            }
        }
        return found.toString();
    }

    static String client(String[] question) {
        int block = Integer.parseInt(question[1]);
        AppendBatchSizeTracker tracker = new AppendBatchSizeTracker() {
            public void recordAppend(long eventNumber, int size) { }
            public long recordAck(long eventNumber) { return 0; }
            public int getAppendBlockSize() { return block; }
            public int getBatchTimeout() { return 1000; }
        };
        EmbeddedChannel channel = new EmbeddedChannel(
            new CommandEncoder(id -> tracker, MetricNotifier.NO_OP_METRIC_NOTIFIER));
        channel.writeOutbound(new WireCommands.Hello(16, 5));
        channel.writeOutbound(new WireCommands.SetupAppend(1, WRITER, "seg", ""));
        for (int at = 2; at < question.length; at++) {
            byte[] payload = new byte[Integer.parseInt(question[at])];
            java.util.Arrays.fill(payload, (byte) at);
            WireCommands.Event event = new WireCommands.Event(Unpooled.wrappedBuffer(payload));
            channel.writeOutbound(new Append("seg", WRITER, at - 1, event, 1));
        }
        channel.writeOutbound(new WireCommands.KeepAlive());
        StringBuilder out = new StringBuilder("client ");
        for (ByteBuf one = channel.readOutbound(); one != null; one = channel.readOutbound()) {
            out.append(ByteBufUtil.hexDump(one));
        }
        return out.toString();
    }
}
