// Key-value tables by Pravega's Java client: the requests of Peer.java that begin with "kvt".
//
// kvt create SCOPE TABLE PARTITIONS PRIMARY SECONDARY   whether it was created; PRIMARY and SECONDARY: bytes of keys
// kvt delete SCOPE TABLE                           whether it was deleted
// kvt list SCOPE                                   tables
// kvt SCOPE TABLE put KEY VALUE [VERSION]          the new version. A KEY is PRIMARY or PRIMARY/SECONDARY
// kvt SCOPE TABLE large KEY BYTES                  puts a value of so many bytes
// kvt SCOPE TABLE insert KEY VALUE                 the new version
// kvt SCOPE TABLE insertAll KEY=VALUE...           the new versions
// kvt SCOPE TABLE remove KEY [VERSION]
// kvt SCOPE TABLE removeAll KEY...
// kvt SCOPE TABLE exists KEY
// kvt SCOPE TABLE get KEY...                       KEY=VALUE@VERSION of each, "none" for a missing key
// kvt SCOPE TABLE size KEY                         bytes of its value
// kvt SCOPE TABLE keys|entries SIZE WHICH          keys of iterators, as KEY, or KEY=VALUE@VERSION; SIZE: most in a page.
//                                                  WHICH: all, range FROM TO, prefix PREFIX, primary KEY,
//                                                  primaryRange KEY FROM TO, primaryPrefix KEY PREFIX. "-" is no limit

import io.pravega.client.ClientConfig;
import io.pravega.client.KeyValueTableFactory;
import io.pravega.client.admin.KeyValueTableManager;
import io.pravega.client.tables.Insert;
import io.pravega.client.tables.IteratorItem;
import io.pravega.client.tables.KeyValueTable;
import io.pravega.client.tables.KeyValueTableClientConfiguration;
import io.pravega.client.tables.KeyValueTableConfiguration;
import io.pravega.client.tables.KeyValueTableIterator;
import io.pravega.client.tables.Put;
import io.pravega.client.tables.Remove;
import io.pravega.client.tables.TableEntry;
import io.pravega.client.tables.TableKey;
import io.pravega.client.tables.TableModification;
import io.pravega.client.tables.Version;
import io.pravega.common.util.AsyncIterator;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;

public class Tables {
    static final int SECONDS = 20;
    static final Map<String, KeyValueTable> opened = new HashMap<>(); // by scope and table

    static String run(String[] words, ClientConfig config) throws Throwable {
        try {
            switch (words[1]) {
                case "create":
                case "delete":
                case "list":
                    return manage(words, config);
                default:
                    return use(words, config);
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

    static String manage(String[] words, ClientConfig config) {
        try (KeyValueTableManager manager = KeyValueTableManager.create(config)) {
            switch (words[1]) {
                case "create":
                    return " " + manager.createKeyValueTable(words[2], words[3], KeyValueTableConfiguration.builder()
                        .partitionCount(number(words[4])).primaryKeyLength(number(words[5]))
                        .secondaryKeyLength(number(words[6])).build());
                case "delete":
                    opened.remove(words[2] + "/" + words[3]);
                    return " " + manager.deleteKeyValueTable(words[2], words[3]);
                default:
                    StringJoiner names = new StringJoiner(" ", " ", "");
                    manager.listKeyValueTables(words[2])
                        .forEachRemaining(one -> names.add(one.getKeyValueTableName()));
                    return names.toString();
            }
        }
    }

    static String use(String[] words, ClientConfig config) throws Exception {
        KeyValueTable table = opened.computeIfAbsent(words[1] + "/" + words[2],
            name -> KeyValueTableFactory.withScope(words[1], config).forKeyValueTable(words[2],
                KeyValueTableClientConfiguration.builder().build()));
        StringJoiner answer = new StringJoiner(" ", " ", "");
        TableKey key = words.length > 4 ? key(words[4].split("=")[0]) : null;
        switch (words[3]) {
            case "put":
                answer.add(got(table.update(words.length > 6
                    ? new Put(key, bytes(words[5]), Version.fromString(words[6]))
                    : new Put(key, bytes(words[5])))).toString());
                break;
            case "large":
                got(table.update(new Put(key, ByteBuffer.allocate(number(words[5])))));
                break;
            case "insert":
                answer.add(got(table.update(new Insert(key, bytes(words[5])))).toString());
                break;
            case "remove":
                got(table.update(words.length > 5
                    ? new Remove(key, Version.fromString(words[5])) : new Remove(key)));
                break;
            case "insertAll":
            case "removeAll":
                List<TableModification> changes = new ArrayList<>();
                for (int at = 4; at < words.length; at++) {
                    String[] pair = words[at].split("=");
                    changes.add(words[3].equals("insertAll")
                        ? new Insert(key(pair[0]), bytes(pair[1])) : new Remove(key(pair[0])));
                }
                got(table.update(changes)).forEach(version -> answer.add(version.toString()));
                break;
            case "exists":
                answer.add(got(table.exists(key)).toString());
                break;
            case "get":
                List<TableKey> keys = new ArrayList<>();
                for (int at = 4; at < words.length; at++) {
                    keys.add(key(words[at]));
                }
                got(table.getAll(keys)).forEach(entry -> answer.add(spelled(entry)));
                break;
            case "size":
                answer.add("" + got(table.get(key)).getValue().remaining());
                break;
            case "keys":
                all(iterator(table, words).keys()).forEach(one -> answer.add(spelled(one)));
                break;
            case "entries":
                all(iterator(table, words).entries()).forEach(one -> answer.add(spelled(one)));
                break;
            default:
                throw new IllegalArgumentException(words[3]);
        }
        return answer.toString();
    }

    static KeyValueTableIterator iterator(KeyValueTable table, String[] words) {
        KeyValueTableIterator.Builder builder = table.iterator().maxIterationSize(number(words[4]));
        switch (words[5]) {
            case "all":
                return builder.all();
            case "range":
                return builder.forRange(limit(words[6]), limit(words[7]));
            case "prefix":
                return builder.forPrefix(bytes(words[6]));
            case "primary":
                return builder.forPrimaryKey(bytes(words[6]));
            case "primaryRange":
                return builder.forPrimaryKey(bytes(words[6]), limit(words[7]), limit(words[8]));
            default:
                return builder.forPrimaryKey(bytes(words[6]), bytes(words[7]));
        }
    }

    static <T> List<T> all(AsyncIterator<IteratorItem<T>> pages) throws Exception {
        List<T> found = new ArrayList<>();
        for (IteratorItem<T> page = got(pages.getNext()); page != null; page = got(pages.getNext())) {
            found.addAll(page.getItems());
        }
        return found;
    }

    static <T> T got(CompletableFuture<T> future) throws Exception {
        return future.get(SECONDS, TimeUnit.SECONDS);
    }

    static int number(String word) {
        return Integer.parseInt(word);
    }

    static ByteBuffer bytes(String text) {
        return ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8));
    }

    static ByteBuffer limit(String text) {
        return text.equals("-") ? null : bytes(text);
    }

    static TableKey key(String text) {
        String[] parts = text.split("/");
        return parts.length == 1 ? new TableKey(bytes(parts[0])) : new TableKey(bytes(parts[0]), bytes(parts[1]));
    }

    static String spelled(TableKey key) {
        ByteBuffer secondary = key.getSecondaryKey();
        String primary = text(key.getPrimaryKey());
        return secondary == null || !secondary.hasRemaining() ? primary : primary + "/" + text(secondary);
    }

    static String spelled(TableEntry entry) {
        return entry == null ? "none"
            : spelled(entry.getKey()) + "=" + text(entry.getValue()) + "@" + entry.getVersion();
    }

    static String text(ByteBuffer data) {
        return StandardCharsets.UTF_8.decode(data.duplicate()).toString();
    }
}
