"""What a host does with a resource, from the first try until it is given back: campaigns, renewals, returns,
handing on, keeping."""
