"""What the agent counts, and how Prometheus reads it.

A metric is declared once, where it is counted or read:

    families                       how one is declared, and handed on to prometheus_client
    counts                         what the event loop changes in place: tallies and histograms
    configured                     what the configuration says
    reload                         what became of reading it anew
    leases, masters, agent, canary what they are told of is counted in these
    fleet_view, occupancy          what is looked at when somebody asks
    collector                      gathers them, in the order in which they are exposed
"""
