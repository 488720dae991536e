import io.pravega.client.state.InitialUpdate;
import io.pravega.client.state.Revision;
import io.pravega.client.state.Revisioned;
import io.pravega.client.state.Update;
import java.io.Serializable;

// A shared state that counts, and what changes it.
class Sum implements Revisioned {
    final String name;
    final Revision revision;
    final int value;

    Sum(String name, Revision revision, int value) {
        this.name = name;
        this.revision = revision;
        this.value = value;
    }

    @Override
    public String getScopedStreamName() {
        return name;
    }

    @Override
    public Revision getRevision() {
        return revision;
    }
}

class Add implements Update<Sum>, Serializable {
    @Override
    public Sum applyTo(Sum old, Revision revision) {
        return new Sum(old.name, revision, old.value + 1);
    }
}

class Start implements InitialUpdate<Sum>, Serializable {
    final int value;

    Start(int value) {
        this.value = value;
    }

    @Override
    public Sum create(String name, Revision revision) {
        return new Sum(name, revision, value);
    }
}
