import io.pravega.client.stream.EventStreamWriter;
import io.pravega.client.stream.EventWriterConfig;
import io.pravega.client.stream.Transaction;
import io.pravega.client.stream.TransactionalEventStreamWriter;
import io.pravega.client.stream.impl.UTF8StringSerializer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.StringJoiner;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;

// Writers and transactions that are kept: the requests of Peer.java that begin with "writer" and "txn".
//
// writer open NAME SCOPE STREAM [large|pooled]     large: events may have more than 8 MiB
// writer send NAME KEY TEXT...                     events with a routing key, or none if KEY is "-"; all acknowledged
// writer batch NAME KEY TEXT...                    the same by writeEvents: all of them, or none
// writer fill NAME KEY BYTES...                    events of so many bytes; LENGTH:CRC of each
// writer close NAME
//
// txn open NAME SCOPE STREAM [LEASE]               a transactional writer; LEASE in ms
// txn begin TXN NAME                               its id
// txn find TXN NAME ID                             a transaction by its id
// txn put TXN KEY TEXT...                          txn flush TXN
// txn commit TXN                                   waits until it is committed or aborted; which
// txn abort TXN                                    the same
// txn ask TXN commit|abort                         only asks for it
// txn status TXN
// txn close NAME                                   the writer
class Writers {
    static int filled;

    @SuppressWarnings("unchecked")
    static String writer(String[] words) throws Exception {
        String name = words[2];
        if (words[1].equals("open")) {
            String option = words.length > 5 ? words[5] : "";
            EventWriterConfig config = EventWriterConfig.builder().enableLargeEvents(option.equals("large"))
                .enableConnectionPooling(option.equals("pooled")).build();
            Kept.things.put(name, Kept.factory(words[3]).createEventWriter(
                words[4], new UTF8StringSerializer(), config));
            return "";
        }
        EventStreamWriter<String> writer = (EventStreamWriter<String>) Kept.get(EventStreamWriter.class, name);
        List<CompletableFuture<Void>> written = new ArrayList<>();
        StringJoiner sums = new StringJoiner(" ", " ", "");
        switch (words[1]) {
            case "send":
                for (int at = 4; at < words.length; at++) {
                    written.add(words[3].equals("-")
                        ? writer.writeEvent(words[at]) : writer.writeEvent(words[3], words[at]));
                }
                break;
            case "batch":
                written.add(writer.writeEvents(words[3], Arrays.asList(words).subList(4, words.length)));
                break;
            case "fill":
                for (int at = 4; at < words.length; at++) {
                    String text = Kept.numbered(filled++, Peer.number(words[at]));
                    written.add(writer.writeEvent(words[3], text));
                    sums.add(Kept.sum(text));
                }
                break;
            default:
                writer.close();
                return "";
        }
        writer.flush();
        for (CompletableFuture<Void> one : written) {
            Kept.got(one);
        }
        return words[1].equals("fill") ? sums.toString() : "";
    }

    @SuppressWarnings("unchecked")
    static String transaction(String[] words) throws Exception {
        String name = words[2];
        switch (words[1]) {
            case "open":
                EventWriterConfig.EventWriterConfigBuilder config = EventWriterConfig.builder();
                if (words.length > 5) {
                    config.transactionTimeoutTime(Long.parseLong(words[5]));
                }
                Kept.things.put(name, Kept.factory(words[3]).createTransactionalEventWriter(
                    name, words[4], new UTF8StringSerializer(), config.build()));
                return "";
            case "begin":
                Transaction<String> begun = opened(words[3]).beginTxn();
                Kept.things.put(name, begun);
                return " " + begun.getTxnId();
            case "find":
                Kept.things.put(name, opened(words[3]).getTxn(UUID.fromString(words[4])));
                return "";
            case "close":
                opened(name).close();
                return "";
            default:
                return use((Transaction<String>) Kept.get(Transaction.class, name), words);
        }
    }

    @SuppressWarnings("unchecked")
    static TransactionalEventStreamWriter<String> opened(String name) {
        return (TransactionalEventStreamWriter<String>) Kept.get(TransactionalEventStreamWriter.class, name);
    }

    static String use(Transaction<String> transaction, String[] words) throws Exception {
        switch (words[1]) {
            case "put":
                for (int at = 4; at < words.length; at++) {
                    transaction.writeEvent(words[3], words[at]);
                }
                return "";
            case "flush":
                transaction.flush();
                return "";
            case "commit":
                transaction.commit();
                return " " + ended(transaction);
            case "abort":
                transaction.abort();
                return " " + ended(transaction);
            case "ask":
                if (words[3].equals("commit")) {
                    transaction.commit();
                } else {
                    transaction.abort();
                }
                return "";
            case "status":
                return " " + transaction.checkStatus();
            default:
                throw new IllegalArgumentException(words[1]);
        }
    }

    static Transaction.Status ended(Transaction<String> transaction) throws InterruptedException {
        Transaction.Status status = transaction.checkStatus();
        for (int turn = 0; status.toString().endsWith("ING") && turn < Peer.SECONDS * 20; turn++) {
            Thread.sleep(50);
            status = transaction.checkStatus();
        }
        return status;
    }
}
