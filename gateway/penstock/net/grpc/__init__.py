"""A server of unary gRPC calls over HTTP/2 (`GrpcService`)."""

from penstock.net.grpc.call import GrpcContext, Method
from penstock.net.grpc.service import GrpcService
from penstock.wire.grpc import Code, GrpcError

__all__ = ["Code", "GrpcContext", "GrpcError", "GrpcService", "Method"]
