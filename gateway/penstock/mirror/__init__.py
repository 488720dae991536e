"""A second back beside a route's own: its streams are copied there, compared record by record, and cut over."""
