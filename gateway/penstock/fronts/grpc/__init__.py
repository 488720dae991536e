"""Unary gRPC over the HTTP/2 server. See `GrpcService`."""

from penstock.fronts.grpc.call import GrpcContext, Method
from penstock.fronts.grpc.service import GrpcService
from penstock_codecs.grpc import Code, GrpcError

__all__ = ["Code", "GrpcContext", "GrpcError", "GrpcService", "Method"]
