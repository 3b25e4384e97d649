"""What a host has of a resource, from the first try until it is given back: campaigns, renewals, returns,
handing on, keeping."""
