// Scenarios for franz-go's client against a gateway: `KGO_SEEDS`, and with SASL `MECHANISM`, `NAME` and `SECRET`.
package kafka

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func connect(t *testing.T, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	name, secret := os.Getenv("NAME"), os.Getenv("SECRET")
	var mechanism sasl.Mechanism
	switch os.Getenv("MECHANISM") {
	case "PLAIN":
		mechanism = plain.Auth{User: name, Pass: secret}.AsMechanism()
	case "SCRAM-SHA-256":
		mechanism = scram.Auth{User: name, Pass: secret}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		mechanism = scram.Auth{User: name, Pass: secret}.AsSha512Mechanism()
	}
	if mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	options = append(options, kgo.SeedBrokers(strings.Split(os.Getenv("KGO_SEEDS"), ",")...), kgo.AllowAutoTopicCreation())
	client, err := kgo.NewClient(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// values consumes until it has so many records.
func values(t *testing.T, client *kgo.Client, count int) []string {
	t.Helper()
	ctx := deadline(t)
	var found []string
	for len(found) < count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) { found = append(found, string(r.Key)+"="+string(r.Value)) })
	}
	return found
}

func TestProduceAndConsume(t *testing.T) {
	topic := os.Getenv("TOPIC")
	producer := connect(t)
	for _, value := range []string{"1", "2", "3"} {
		record := &kgo.Record{Topic: topic, Key: []byte("k"), Value: []byte(value)}
		if err := producer.ProduceSync(deadline(t), record).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	consumer := connect(t, kgo.ConsumeTopics(topic), kgo.ConsumerGroup(topic+"-group"))
	if found := strings.Join(values(t, consumer, 3), " "); found != "k=1 k=2 k=3" {
		t.Fatal(found)
	}
}

// TestRegularExpression subscribes to an expression that the server matches (KIP-848), with a topic that is created later.
func TestRegularExpression(t *testing.T) {
	topic := os.Getenv("TOPIC")
	producer := connect(t)
	produce := func(name string) {
		if err := producer.ProduceSync(deadline(t), &kgo.Record{Topic: topic + name, Value: []byte(name)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	produce("-eu")
	produce("-old")
	consumer := connect(t, kgo.ServerSideBalancer(), kgo.ConsumerGroup(topic+"-matched"), kgo.ConsumeRegex(),
		kgo.ConsumeTopics("^"+topic+"-(eu|us)$"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if found := values(t, consumer, 1); found[0] != "=-eu" {
		t.Fatal(found)
	}
	produce("-us")
	if found := values(t, consumer, 1); found[0] != "=-us" {
		t.Fatal(found)
	}
	if err := consumer.CommitUncommittedOffsets(deadline(t)); err != nil {
		t.Fatal(err)
	}
}

// TestRefusedCommit ends a transaction one of whose streams, SEALED, is sealed by another client as soon as it is told.
func TestRefusedCommit(t *testing.T) {
	topic, sealed := os.Getenv("TOPIC"), os.Getenv("SEALED")
	producer := connect(t, kgo.TransactionalID(topic))
	if err := producer.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{topic, sealed} {
		if err := producer.ProduceSync(deadline(t), &kgo.Record{Topic: name, Value: []byte("lost")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	os.Stdout.WriteString("produced\n")
	os.Stdin.Read(make([]byte, 1))
	if err := producer.EndTransaction(deadline(t), kgo.TryCommit); err == nil {
		t.Fatal("the commit was acknowledged")
	}
	if err := producer.EndTransaction(deadline(t), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	if err := producer.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := producer.ProduceSync(deadline(t), &kgo.Record{Topic: topic, Value: []byte("kept")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := producer.EndTransaction(deadline(t), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	consumer := connect(t, kgo.ConsumeTopics(topic))
	if found := values(t, consumer, 1); found[0] != "=kept" {
		t.Fatal(found)
	}
}
