// The official Go client, unmodified, against the gateway that S2_ACCOUNT_ENDPOINT and S2_BASIN_ENDPOINT name.
// What the client's own integration tests leave out: compression, deep pipelines, and a session that is refused.
package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/s2-streamstore/s2-sdk-go/s2"
)

func connect(t *testing.T, compression s2.CompressionType) *s2.StreamClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	client := s2.NewFromEnvironment(&s2.ClientOptions{Compression: compression})
	basin := client.Basin(os.Getenv("PENSTOCK_BASIN"))
	stream := s2.StreamName(fmt.Sprintf("go/%s", t.Name()))
	if _, err := basin.Streams.Ensure(ctx, s2.EnsureStreamArgs{Stream: stream}); err != nil {
		t.Fatalf("ensure stream: %v", err)
	}
	return basin.Stream(stream)
}

func body(n int) []byte {
	// Every third batch stays below the size from which frames are compressed.
	if n%3 == 0 {
		return []byte(fmt.Sprintf("%d", n))
	}
	return bytes.Repeat([]byte(fmt.Sprintf("%d ", n)), 600)
}

func sessions(t *testing.T, compression s2.CompressionType) {
	stream := connect(t, compression)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()

	reader, err := stream.ReadSession(ctx, &s2.ReadOptions{SeqNum: s2.Uint64(0)})
	if err != nil {
		t.Fatalf("read session: %v", err)
	}
	defer reader.Close()

	const batches = 300
	session, err := stream.AppendSession(ctx, nil)
	if err != nil {
		t.Fatalf("append session: %v", err)
	}
	tickets := make([]*s2.BatchSubmitTicket, 0, batches)
	for n := 0; n < batches; n++ {
		future, err := session.Submit(&s2.AppendInput{
			Records:     []s2.AppendRecord{{Body: body(n)}, {Headers: []s2.Header{s2.NewHeader("k", "v")}}},
			MatchSeqNum: s2.Uint64(uint64(2 * n)),
		})
		if err != nil {
			t.Fatalf("submit %d: %v", n, err)
		}
		ticket, err := future.Wait(ctx)
		if err != nil {
			t.Fatalf("submit %d: %v", n, err)
		}
		tickets = append(tickets, ticket)
	}
	for n, ticket := range tickets {
		ack, err := ticket.Ack(ctx)
		if err != nil {
			t.Fatalf("ack %d: %v", n, err)
		}
		if ack.Start.SeqNum != uint64(2*n) || ack.End.SeqNum != uint64(2*n+2) {
			t.Fatalf("ack %d is for %d..%d", n, ack.Start.SeqNum, ack.End.SeqNum)
		}
	}
	if err := session.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}

	for n := 0; n < 2*batches; n++ {
		if !reader.Next() {
			t.Fatalf("the session ended at %d: %v", n, reader.Err())
		}
		record := reader.Record()
		expected := body(n / 2)
		if n%2 == 1 {
			expected = nil
		}
		if record.SeqNum != uint64(n) || !bytes.Equal(record.Body, expected) || len(record.Headers) != n%2 {
			t.Fatalf("record %d came as %d with %d bytes and %d headers", n, record.SeqNum, len(record.Body), len(record.Headers))
		}
	}

	batch, err := stream.Read(ctx, &s2.ReadOptions{TailOffset: s2.Ptr(int64(1))})
	if err != nil || len(batch.Records) != 1 || batch.Records[0].SeqNum != 2*batches-1 {
		t.Fatalf("unary read: %v %v", batch, err)
	}
}

func TestSessionsPlain(t *testing.T) { sessions(t, s2.CompressionNone) }
func TestSessionsGzip(t *testing.T)  { sessions(t, s2.CompressionGzip) }
func TestSessionsZstd(t *testing.T)  { sessions(t, s2.CompressionZstd) }

func TestSessionRefused(t *testing.T) {
	stream := connect(t, s2.CompressionNone)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	session, err := stream.AppendSession(ctx, nil)
	if err != nil {
		t.Fatalf("append session: %v", err)
	}
	defer session.Close()
	future, err := session.Submit(&s2.AppendInput{
		Records:     []s2.AppendRecord{{Body: []byte("x")}},
		MatchSeqNum: s2.Uint64(7),
	})
	if err != nil {
		t.Fatalf("submit: %v", err)
	}
	ticket, err := future.Wait(ctx)
	if err != nil {
		t.Fatalf("submit: %v", err)
	}
	_, err = ticket.Ack(ctx)
	var mismatch *s2.SeqNumMismatchError
	if !errors.As(err, &mismatch) || mismatch.ExpectedSeqNum != 0 {
		t.Fatalf("expected a sequence number mismatch that names 0, got %v", err)
	}
}
