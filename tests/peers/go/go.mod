module penstock/peers

go 1.23

require github.com/s2-streamstore/s2-sdk-go v0.19.0

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/klauspost/compress v1.18.2 // indirect
	golang.org/x/net v0.25.0 // indirect
	golang.org/x/text v0.15.0 // indirect
	google.golang.org/protobuf v1.34.0 // indirect
)
