import io.pravega.client.EventStreamClientFactory;
import io.pravega.client.stream.EventStreamWriter;
import io.pravega.client.stream.impl.UTF8StringSerializer;
import java.util.ArrayDeque;
import java.util.concurrent.CompletableFuture;

// Writes events until it is told to finish.
//
// Keeps up to MOST events in flight. Events of the same segment are acknowledged in order, so the first
// one that is not ends the count.
class Background extends Thread {
    static final int MOST = 300;

    final String scope;
    final String stream;
    final int keys;
    final int longest;
    final ArrayDeque<CompletableFuture<Void>> inFlight = new ArrayDeque<>();
    volatile int acknowledged;
    volatile boolean stopping;
    volatile Throwable failure;

    Background(String scope, String stream, int keys, int longest) {
        this.scope = scope;
        this.stream = stream;
        this.keys = keys;
        this.longest = longest;
        setDaemon(true);
    }

    @Override
    public void run() {
        try (EventStreamClientFactory factory = Peer.events(scope);
             EventStreamWriter<String> writer =
                 factory.createEventWriter(stream, new UTF8StringSerializer(), Peer.WRITING)) {
            for (int index = 0; !stopping; index++) {
                inFlight.add(writer.writeEvent("key" + index % keys, Peer.filled("e", index, longest)));
                while (inFlight.size() >= MOST || !inFlight.isEmpty() && inFlight.peek().isDone()) {
                    inFlight.remove().get();
                    acknowledged++;
                }
            }
            while (!inFlight.isEmpty()) {
                inFlight.remove().get();
                acknowledged++;
            }
        } catch (Throwable error) {
            failure = error;
        }
    }

    int finish() throws Exception {
        stopping = true;
        join();
        if (failure != null) {
            throw new Exception(failure);
        }
        return acknowledged;
    }
}
