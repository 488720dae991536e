import io.pravega.client.SynchronizerClientFactory;
import io.pravega.client.state.Revision;
import io.pravega.client.state.RevisionedStreamClient;
import io.pravega.client.state.StateSynchronizer;
import io.pravega.client.state.SynchronizerConfig;
import io.pravega.client.state.Update;
import io.pravega.client.stream.impl.UTF8StringSerializer;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;

// Revisioned streams and shared states that are kept: the requests of Peer.java that begin with "revisions" and "state".
//
// revisions open NAME SCOPE STREAM
// revisions oldest|latest NAME REVISION            keeps one under a name
// revisions write NAME FROM TO TEXT                whether it could be written at FROM; TO is the revision after it
// revisions add NAME TEXT                          writes without a condition
// revisions read NAME FROM [TO]                    the texts after FROM
// revisions truncate NAME REVISION
// revisions order FROM TO                          below 0 if FROM is before TO
//
// state open NAME SCOPE STREAM                     a sum that all who open the stream share
// state start NAME VALUE                           begins with it, if nobody else did
// state add NAME COUNT                             adds 1 so often, at once; how many attempts it took
// state blind NAME                                 adds 1 without a look at the state
// state fetch NAME                                 state value NAME
// state compact NAME                               state written NAME: bytes since the last "compact"
class States {
    static SynchronizerClientFactory factory(String scope) {
        return (SynchronizerClientFactory) Kept.things.computeIfAbsent(
            scope + "/states", name -> SynchronizerClientFactory.withScope(scope, Peer.config));
    }

    @SuppressWarnings("unchecked")
    static String revisions(String[] words) {
        String name = words[2];
        if (words[1].equals("open")) {
            Kept.things.put(name, factory(words[3]).createRevisionedStreamClient(
                words[4], new UTF8StringSerializer(), SynchronizerConfig.builder().build()));
            return "";
        }
        if (words[1].equals("order")) {
            return " " + revision(name).compareTo(revision(words[3]));
        }
        RevisionedStreamClient<String> client =
            (RevisionedStreamClient<String>) Kept.get(RevisionedStreamClient.class, name);
        switch (words[1]) {
            case "oldest":
                Kept.things.put(words[3], client.fetchOldestRevision());
                return "";
            case "latest":
                Kept.things.put(words[3], client.fetchLatestRevision());
                return "";
            case "write":
                Revision after = client.writeConditionally(revision(words[3]), words[5]);
                if (after != null) {
                    Kept.things.put(words[4], after);
                }
                return " " + (after != null);
            case "add":
                client.writeUnconditionally(words[3]);
                return "";
            case "read":
                Iterator<Map.Entry<Revision, String>> entries = words.length > 4
                    ? client.readRange(revision(words[3]), revision(words[4])) : client.readFrom(revision(words[3]));
                StringJoiner texts = new StringJoiner(" ", " ", "");
                entries.forEachRemaining(entry -> texts.add(entry.getValue()));
                return texts.toString();
            default:
                client.truncateToRevision(revision(words[3]));
                return "";
        }
    }

    static Revision revision(String name) {
        return Kept.get(Revision.class, name);
    }

    @SuppressWarnings("unchecked")
    static String state(String[] words) {
        String name = words[2];
        if (words[1].equals("open")) {
            Kept.things.put(name, Peer.synchronizer(factory(words[3]), words[4]));
            return "";
        }
        StateSynchronizer<Sum> state = (StateSynchronizer<Sum>) Kept.get(StateSynchronizer.class, name);
        switch (words[1]) {
            case "start":
                state.initialize(new Start(Peer.number(words[3])));
                return "";
            case "add":
                int[] attempts = {0};
                state.updateState((Sum sum, List<Update<Sum>> updates) -> {
                    attempts[0]++;
                    for (int count = 0; count < Peer.number(words[3]); count++) {
                        updates.add(new Add());
                    }
                });
                return " " + attempts[0];
            case "blind":
                state.updateStateUnconditionally(new Add());
                return "";
            case "fetch":
                state.fetchUpdates();
                return "";
            case "value":
                return " " + (state.getState() == null ? "none" : state.getState().value);
            case "compact":
                state.compact(old -> new Start(old.value));
                return "";
            default:
                return " " + state.bytesWrittenSinceCompaction();
        }
    }
}
