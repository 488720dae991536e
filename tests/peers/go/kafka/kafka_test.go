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
